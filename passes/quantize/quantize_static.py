"""`quantize-static`: activations and weights in int8, FP8 or NVFP4, by calibrated scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import onnx_ir as ir

from optc.forms.form import Form
from optc.forms.ragged import RaggedStep
from optc.ir.emit import Emitter, dims_of
from optc.ir.functions.block_fp4 import BLOCK
from optc.ir.graph import add_initializer, remove_unused, replace_node
from optc.ir.linear import Linear, find_linear, head_of, sources
from optc.ir.sources import sources_metadata
from optc.ir.weights import Array, LazyWeight
from optc.passes.quantize.block_fp4 import rewrite_block_fp4
from optc.passes.quantize.calibrate import input_range
from optc.passes.quantize.sample import sample_nodes
from optc.passes.quantize.static_scales import beyond_scales, storable
from optc.pipeline.base import Pass, PassReport
from optc.reference.calibration import calibration_of


@dataclass(frozen=True)
class _Format:
    """A type of low precision: its ONNX and NumPy types and its largest value."""

    onnx: ir.DataType
    numpy: np.dtype[Any]
    limit: float

    def round(self, values: Array) -> Array:
        """``values``, in units of their scale, as the type has them."""
        bounded = np.clip(values, -self.limit, self.limit)
        if self.onnx is ir.DataType.INT8:
            bounded = np.rint(bounded)
        return bounded.astype(self.numpy)


_FORMATS = {
    "int8": _Format(ir.DataType.INT8, np.dtype(np.int8), 127.0),
    "fp8": _Format(ir.DataType.FLOAT8E4M3FN, np.dtype(ml_dtypes.float8_e4m3fn), 448.0),
}
#: NVFP4: blocks with scales of their own, found for activations as they run.
_BLOCK_FP4 = "nvfp4"
_DTYPES = (*_FORMATS, _BLOCK_FP4)


@dataclass(frozen=True)
class QuantizeStatic(Pass):
    """MatMul with a constant weight becomes QuantizeLinear, DequantizeLinear and MatMul; with
    ``nvfp4`` it becomes ``optc::BlockFp4MatMul``.

    With int8 and FP8 activations have one scale for the whole tensor, the range that `calibrate`
    found over the type's largest value (by default min-max); weights one for each output channel.
    All are symmetric, and float16 has them exactly. Engines multiply the quantized values.
    With NVFP4 every 16 values along K have a scale in E4M3, which activations get as they run,
    and the tensor one more, which makes the largest of these the type's largest.

    Legal cases:
        1. any calibrated linear layer; layers of one input share its quantization;
        2. the head only if ``head``;
        3. ``nvfp4`` only where 16 divides K;
        4. int8 and FP8 only where float16 has the scale of the layer's input: else the layer stays
           float, and the report names it.

    Attributes:
        dtype: ``int8``, ``fp8`` (E4M3: Micikevicius et al., 2022) or ``nvfp4`` (E2M1 in blocks of
            16: the OCP Microscaling formats' element type, with NVIDIA's scales).
        head: Quantize the head.
    """

    name: ClassVar[str] = "quantize-static"
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (RaggedStep,)
    after: ClassVar[tuple[str, ...]] = ("calibrate",)

    dtype: str = "int8"
    head: bool = False

    def __post_init__(self) -> None:
        """Refuse other types.

        Raises:
            InputError: ``dtype`` is none of the three.
        """
        self.check_option("dtype", _DTYPES)

    def samples(self) -> Sequence[ir.Node]:
        """An embedding, a linear layer and a head."""
        return sample_nodes(self)

    def run(self, model: ir.Model) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        head = head_of(model)
        store = calibration_of(model)
        activations: dict[ir.Value, ir.Value] = {}
        for node in list(model.graph):
            linear = find_linear(node)
            if linear is None:
                continue
            known = input_range(store, linear)
            why = self._reason_against(linear, head) or self._beyond_range(linear, known)
            if why or known is None:
                not_calibrated = f"the input of {linear.name} is not calibrated"
                report.skip(linear.matmul, why or not_calibrated)
                continue
            if self.dtype == _BLOCK_FP4:
                rewrite_block_fp4(model, linear, known)
                report.add(f"NVFP4 in blocks of {BLOCK}, activations too")
            else:
                _rewrite(model.graph, linear, known, _FORMATS[self.dtype], activations)
                report.add(f"{self.dtype} per channel, activations per tensor")
        remove_unused(model)
        return report

    def _reason_against(self, linear: Linear, head: Linear | None) -> str:
        """Why a calibrated layer stays as it is; empty if it is quantized."""
        if head is not None and linear.matmul is head.matmul and not self.head:
            return "the head stays float (head=false)"
        columns = linear.weight.rows_shape[1]
        if self.dtype == _BLOCK_FP4 and columns % BLOCK:
            return f"K={columns} of {linear.name} is not a multiple of {BLOCK}: it stays float"
        return ""

    def _beyond_range(self, linear: Linear, known: float | None) -> str:
        """Why the calibrated range of a layer's input has no scale; empty if it has one."""
        if known is None or self.dtype == _BLOCK_FP4:
            return ""
        why = beyond_scales(known / _FORMATS[self.dtype].limit)
        if not why:
            return ""
        return f"the input of {linear.name} reaches {known:.3g}: {why}; it stays float"


def _rewrite(
    graph: ir.Graph,
    linear: Linear,
    magnitude: float,
    chosen: _Format,
    activations: dict[ir.Value, ir.Value],
) -> None:
    name = linear.matmul.name or linear.name
    emit = Emitter(graph, name)
    x = activations.get(linear.x)
    if x is None:
        x = _quantized_activation(graph, linear, magnitude, chosen)
        activations[linear.x] = x
    metadata = sources_metadata(sources([linear]))
    values = add_initializer(graph, _values(linear, chosen), f"{linear.name}.quantized", metadata)
    scales = add_initializer(graph, _scales(linear, chosen), f"{linear.name}.scale")
    rows, columns = linear.weight.rows_shape
    weight = emit.op("dequantize", "DequantizeLinear", [values, scales], [columns, rows], axis=1)
    dims = dims_of(linear.matmul.outputs[0])
    result = emit.op("matmul", "MatMul", [x, weight], dims)
    if linear.bias is not None:
        result = emit.op("bias", "Add", [result, linear.bias], dims)
    replace_node(linear.nodes, emit.nodes, [linear.output], [result])


def _quantized_activation(
    graph: ir.Graph, linear: Linear, magnitude: float, chosen: _Format
) -> ir.Value:
    """The layer's input, quantized and as the float values that this stands for."""
    emit = Emitter(graph, f"{linear.x.name}.{chosen.numpy.name}")
    scale = emit.constant("scale", storable(np.float32(magnitude / chosen.limit)))
    dims = dims_of(linear.x)
    quantized = emit.op(
        "quantize",
        "QuantizeLinear",
        [linear.x, scale],
        dims,
        chosen.onnx,
        output_dtype=int(chosen.onnx),
    )
    wide = emit.op("dequantize", "DequantizeLinear", [quantized, scale], dims)
    graph.insert_before(linear.matmul, emit.nodes)
    return wide


def _channel_scales(rows: Array, chosen: _Format) -> Array:
    """[n] of rows [n, K]."""
    return storable(np.abs(rows.astype(np.float32, copy=False)).max(axis=1) / chosen.limit)


def _values(linear: Linear, chosen: _Format) -> LazyWeight:
    def quantize(rows: Array) -> Array:
        wide = rows.astype(np.float32, copy=False)
        return chosen.round(wide / _channel_scales(wide, chosen)[:, None])

    return linear.weight.map_rows(quantize, chosen.onnx)


def _scales(linear: Linear, chosen: _Format) -> LazyWeight:
    read = linear.weight.read_rows
    return LazyWeight(
        lambda start, stop: _channel_scales(read(start, stop), chosen),
        linear.weight.rows_shape[:1],
        ir.DataType.FLOAT,
        f"{linear.name}.scale",
    )
