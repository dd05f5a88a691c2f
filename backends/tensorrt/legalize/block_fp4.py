"""`tensorrt-fp4`: NVFP4 matmuls in TensorRT's own operator and DequantizeLinear of two levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy as np
import onnx_ir as ir

from optc.ir.emit import Dims, Emitter, dims_of
from optc.ir.forms.form import Form
from optc.ir.forms.static_kv import StaticKV
from optc.ir.functions import DOMAIN, is_op
from optc.ir.functions.block_fp4 import BLOCK
from optc.ir.graph import add_initializer, constant, remove_unused, replace_node
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.weights import Array, LazyWeight

#: TensorRT's own operators, in the version that there is.
NATIVE_DOMAIN, _NATIVE_VERSION = "trt", 1
QUANTIZE = "TRT_FP4DynamicQuantize"
#: Type of the scales that activations get, as ONNX numbers it.
SCALE_TYPE = int(ir.DataType.FLOAT8E4M3FN)


@dataclass(frozen=True)
class BlockFp4(Pass):
    """``optc::BlockFp4MatMul`` as TensorRT multiplies it: both operands in FP4.

    Weights become DequantizeLinear of E2M1 values in blocks, whose scales are a DequantizeLinear
    of E4M3 ones; activations the same behind ``trt::TRT_FP4DynamicQuantize``.
    """

    name: ClassVar[str] = "tensorrt-fp4"
    takes: ClassVar[tuple[type[Form], ...]] = (StaticKV,)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in [n for n in model.graph if is_op(n, "BlockFp4MatMul", domain=DOMAIN)]:
            x, weight, scale, whole, x_whole, bias = [*node.inputs, None][:6]
            name = node.name or node.outputs[0].name or node.op_type
            emit = Emitter(model.graph, name)
            activation = _activation(emit, f"{name}.quantize", x, x_whole)
            wide = _weight(emit, model.graph, weight, scale, whole)
            dims = dims_of(node.outputs[0])
            product = emit.op("matmul", "MatMul", [activation, wide], dims)
            if bias is not None:
                product = emit.op("bias", "Add", [product, bias], dims)
            replace_node([node], emit.nodes, node.outputs, [product])
            report.add("matmul in NVFP4")
        if report.count:
            model.opset_imports[NATIVE_DOMAIN] = _NATIVE_VERSION
        remove_unused(model)
        return report


def _activation(emit: Emitter, name: str, x: ir.Value | None, whole: ir.Value | None) -> ir.Value:
    """``x`` quantized, as what that stands for."""
    node = ir.Node(
        NATIVE_DOMAIN,
        QUANTIZE,
        [x, whole],
        ir.convenience.convert_attributes(
            {"axis": -1, "block_size": BLOCK, "scale_type": SCALE_TYPE}
        ),
        num_outputs=2,
        name=name,
    )
    values, scales = node.outputs
    dims = None if x is None else dims_of(x)
    by_block = None if dims is None else [*dims[:-1], _blocks_of(dims[-1])]
    _describe(values, f"{name}.values", ir.DataType.FLOAT4E2M1, dims)
    _describe(scales, f"{name}.scales", ir.DataType.FLOAT8E4M3FN, by_block)
    emit.nodes.append(node)
    wide_scales = emit.op("x_scales", "DequantizeLinear", [scales, whole], by_block)
    operands = [values, wide_scales]
    return emit.op("x", "DequantizeLinear", operands, dims, axis=-1, block_size=BLOCK)


def _weight(
    emit: Emitter,
    graph: ir.Graph,
    weight: ir.Value | None,
    scale: ir.Value | None,
    whole: ir.Value | None,
) -> ir.Value:
    """The weight [K, N] from E2M1 values and scales of two levels."""
    doubled = constant(weight)
    if not isinstance(doubled, LazyWeight) or weight is None or scale is None:
        raise ValueError("an NVFP4 weight is no LazyWeight")
    values = doubled.map_rows(_halved, ir.DataType.FLOAT4E2M1)
    stored = add_initializer(graph, values, f"{weight.name}.e2m1", dict(weight.metadata_props))
    scales = emit.op("weight_scales", "DequantizeLinear", [scale, whole], dims_of(scale))
    dims = list(doubled.rows_shape[::-1])
    return emit.op("weight", "DequantizeLinear", [stored, scales], dims, axis=0, block_size=BLOCK)


def _describe(value: ir.Value, name: str, dtype: ir.DataType, dims: Dims | None) -> None:
    value.name, value.type = name, ir.TensorType(dtype)
    value.shape = None if dims is None else ir.Shape(dims)


def _blocks_of(size: int | str) -> int | str:
    return size // BLOCK if isinstance(size, int) else f"{size}/{BLOCK}"


def _halved(rows: Array) -> Array:
    half: Array = (rows.astype(np.float32) / 2).astype(ml_dtypes.float4_e2m1fn)
    return half
