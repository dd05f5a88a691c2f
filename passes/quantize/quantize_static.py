"""`quantize-static`: activations and weights in int8, FP8 or NVFP4, by calibrated scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import onnx_ir as ir

from optc.ir.emit import Emitter, dims_of
from optc.ir.experts import find_expert_linear
from optc.ir.forms.form import Form
from optc.ir.forms.ragged import RaggedStep
from optc.ir.functions.block_fp4 import BLOCK
from optc.ir.graph import add_initializer, remove_unused, replace_node
from optc.ir.linear import Linear, find_linear, head_of, sources, weights_in
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassCosts, PassReport
from optc.ir.pipeline.phase import Phase
from optc.ir.sources import sources_metadata
from optc.ir.weights import LazyWeight
from optc.passes.numerics.gptq.factor import FactorOf
from optc.passes.numerics.gptq.weights import KEPT, Factors
from optc.passes.quantize.calibrate import input_range
from optc.passes.quantize.float_formats.block_fp4 import rewrite_block_fp4
from optc.passes.quantize.float_formats.formats import FP8, INT8, NVFP4, Format
from optc.passes.quantize.float_formats.rows import RoundedRows, round_rows
from optc.passes.quantize.sample import sample_nodes
from optc.passes.quantize.static_scales import beyond_scales, storable
from optc.proof.reference.calibration import calibration_of


@dataclass(frozen=True)
class _Type:
    """A type with one scale for each channel of a weight, and one for activations."""

    form: Format
    onnx: ir.DataType
    numpy: np.dtype[Any]

    @property
    def limit(self) -> float:
        """The largest value."""
        return float(self.form.levels[-1])


_TYPES = {
    "int8": _Type(INT8, ir.DataType.INT8, np.dtype(np.int8)),
    "fp8": _Type(FP8, ir.DataType.FLOAT8E4M3FN, np.dtype(ml_dtypes.float8_e4m3fn)),
}
#: NVFP4: blocks with scales of their own, found for activations as they run.
_BLOCK_FP4 = NVFP4.name
_DTYPES = (*_TYPES, _BLOCK_FP4)


@dataclass(frozen=True)
class QuantizeStatic(Pass):
    """MatMul with a constant weight becomes QuantizeLinear, DequantizeLinear and MatMul; with
    ``nvfp4`` it becomes ``optc::BlockFp4MatMul``.

    With int8 and FP8 activations have one scale for the whole tensor, the range that `calibrate`
    found over the type's largest value (by default min-max); weights one for each output channel.
    All are symmetric, and float16 has them exactly. Engines multiply the quantized values.
    With NVFP4 every 16 values along K have a scale in E4M3, which activations get as they run,
    and the tensor one more, which makes the largest of these the type's largest. Of weights, the
    scale of a block is the one of seven that loses the least.

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
        method: How weights are rounded. ``round``: each to the nearest value; ``gptq``: one input
            after the other, the rest making up for each error, by the Hessians of ``calibrate:
            {hessians: true}``. NVFP4's block scales are searched in both.
    """

    name: ClassVar[str] = "quantize-static"
    phase: ClassVar[Phase] = Phase.ROUNDING
    unlike_class: ClassVar[str] = (
        "activations have static scales, for which the formats have no place"
    )
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (RaggedStep,)
    after: ClassVar[tuple[str, ...]] = ("calibrate",)

    dtype: str = "int8"
    head: bool = False
    method: str = "round"

    def __post_init__(self) -> None:
        """Refuse other types.

        Raises:
            InputError: ``dtype`` is none of the three, or ``method`` none of the two.
        """
        self.check_option("dtype", _DTYPES)
        self.check_option("method", ("round", "gptq"))

    def samples(self) -> Sequence[ir.Node]:
        """An embedding, a linear layer and a head."""
        return sample_nodes(self)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        if context.dry and self.method != "round":  # GPTQ gives the same types
            return replace(self, method="round").run(model, context)
        report = PassReport()
        head = head_of(model)
        store = calibration_of(model)
        factors = Factors(store) if self.method == "gptq" else None
        activations: dict[ir.Value, ir.Value] = {}
        weights = 0
        for node in list(model.graph):
            linear = find_linear(node)
            if (experts := find_expert_linear(node)) is not None:
                reason = f"{experts.linear.name}: experts have no static quantization"
                report.miss(node, reason, weights_in(experts.linear))
            if linear is None:
                continue
            known = input_range(store, linear)
            why = self._reason_against(linear, head) or self._beyond_range(linear, known)
            if why or known is None:
                not_calibrated = f"the input of {linear.name} is not calibrated"
                meant = known is None or self._is_kept_head(linear, head)
                report.miss(
                    linear.matmul, why or not_calibrated, 0 if meant else weights_in(linear)
                )
                continue
            factor = None
            if factors is not None:
                factor = factors.later(linear, self._group_size, f"pass {self.name}")
            if self.dtype == _BLOCK_FP4:
                rewrite_block_fp4(model, linear, known, factor)
                kind = f"NVFP4 in blocks of {BLOCK}, activations too"
            else:
                _rewrite(model.graph, linear, known, _TYPES[self.dtype], activations, factor)
                kind = f"{self.dtype} per channel, activations per tensor"
            report.add(f"{kind}, gptq" if factor else kind)
            weights += weights_in(linear)
        report.judge_missed(weights + report.missed, self.dtype)
        remove_unused(model)
        return report

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """Factors of Hessians, with GPTQ."""
        from optc.passes.calibrating.working_bytes import rounding

        return PassCosts(reading=rounding(model, KEPT) if self.method == "gptq" else 0)

    @property
    def _group_size(self) -> int:
        return BLOCK if self.dtype == _BLOCK_FP4 else 0

    def _is_kept_head(self, linear: Linear, head: Linear | None) -> bool:
        return head is not None and linear.matmul is head.matmul and not self.head

    def _reason_against(self, linear: Linear, head: Linear | None) -> str:
        """Why a calibrated layer stays as it is; empty if it is quantized."""
        if self._is_kept_head(linear, head):
            return "the head stays float (head=false)"
        columns = linear.weight.rows_shape[1]
        if self.dtype == _BLOCK_FP4 and columns % BLOCK:
            return f"K={columns} of {linear.name} is not a multiple of {BLOCK}: it stays float"
        return ""

    def _beyond_range(self, linear: Linear, known: float | None) -> str:
        """Why the calibrated range of a layer's input has no scale; empty if it has one."""
        if known is None or self.dtype == _BLOCK_FP4:
            return ""
        why = beyond_scales(known / _TYPES[self.dtype].limit)
        if not why:
            return ""
        return f"the input of {linear.name} reaches {known:.3g}: {why}; it stays float"


def _rewrite(
    graph: ir.Graph,
    linear: Linear,
    magnitude: float,
    chosen: _Type,
    activations: dict[ir.Value, ir.Value],
    factor: FactorOf | None,
) -> None:
    name = linear.matmul.name or linear.name
    emit = Emitter(graph, name)
    x = activations.get(linear.x)
    if x is None:
        x = _quantized_activation(graph, linear, magnitude, chosen)
        activations[linear.x] = x
    metadata = sources_metadata(sources([linear]))
    whole = _parts(linear, chosen, factor)
    values = add_initializer(graph, whole[0], f"{linear.name}.quantized", metadata)
    scales = add_initializer(graph, whole[1], f"{linear.name}.scale")
    rows, columns = linear.weight.rows_shape
    weight = emit.op("dequantize", "DequantizeLinear", [values, scales], [columns, rows], axis=1)
    dims = dims_of(linear.matmul.outputs[0])
    result = emit.op("matmul", "MatMul", [x, weight], dims)
    if linear.bias is not None:
        result = emit.op("bias", "Add", [result, linear.bias], dims)
    replace_node(linear.nodes, emit.nodes, [linear.output], [result])


def _quantized_activation(
    graph: ir.Graph, linear: Linear, magnitude: float, chosen: _Type
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


def _parts(linear: Linear, chosen: _Type, factor: FactorOf | None) -> tuple[LazyWeight, LazyWeight]:
    """Values [K, N] and scales [N] of a layer's weight."""
    weight, name = linear.weight, linear.name

    def rounded(start: int, stop: int) -> RoundedRows:
        return round_rows(weight.read_rows(start, stop), chosen.form, factor=factor, name=name)

    values = LazyWeight(
        lambda start, stop: rounded(start, stop).values.astype(chosen.numpy),
        weight.rows_shape,
        chosen.onnx,
        name,
        transposed=weight.transposed,
    )
    scales = LazyWeight(
        lambda start, stop: rounded(start, stop).scales[:, 0],
        weight.rows_shape[:1],
        ir.DataType.FLOAT,
        f"{name}.scale",
    )
    return values, scales
