"""NVFP4 layers: E2M1 values in blocks of 16, E4M3 scales of blocks, one scale of the tensor."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from optc.ir.emit import Emitter
from optc.ir.functions import make_node
from optc.ir.functions.block_fp4 import BLOCK, FP4_MAX, FP8_MAX
from optc.ir.graph import add_initializer, replace_node
from optc.ir.linear import Linear, sources
from optc.ir.sources import sources_metadata
from optc.ir.weights import Array, LazyWeight
from optc.passes.numerics.gptq.factor import FactorOf
from optc.passes.quantize.float_formats.formats import NVFP4
from optc.passes.quantize.float_formats.rows import round_rows
from optc.passes.quantize.static_scales import storable

_E4M3 = ml_dtypes.float8_e4m3fn


def rewrite_block_fp4(
    model: ir.Model, linear: Linear, magnitude: float, factor: FactorOf | None = None
) -> None:
    """Replace a linear layer, its bias included, by ``optc::BlockFp4MatMul``.

    Args:
        model: The layer's.
        linear: K of its weight is a multiple of 16.
        magnitude: Largest of its input, on the text that it was calibrated with.
        factor: Gives GPTQ's factor when the weight is read; None rounds plainly.
    """
    graph, name = model.graph, linear.name
    whole = tensor_scale(largest(linear.weight))
    metadata = sources_metadata(sources([linear]))
    emit = Emitter(graph, name)
    values, scales = _parts(linear, float(whole), factor)
    operands = [
        linear.x,
        add_initializer(graph, values, f"{name}.quantized", metadata),
        add_initializer(graph, scales, f"{name}.scale"),
        emit.constant("global_scale", whole),
        emit.constant("input_global_scale", tensor_scale(magnitude)),
        linear.bias,
    ]
    node = make_node(model, "BlockFp4MatMul", operands, name=linear.matmul.name)
    replace_node(linear.nodes, [node], [linear.output], node.outputs)


def tensor_scale(magnitude: float) -> Array:
    """The scale of a tensor that makes its largest block scale the largest E4M3 number."""
    return storable(np.float32(magnitude / (FP4_MAX * FP8_MAX)))


def largest(weight: LazyWeight) -> float:
    """The largest magnitude of a weight, read tile by tile."""
    return max(float(np.abs(weight.read_rows(*tile)).max()) for tile in weight.tiles())


def _parts(linear: Linear, whole: float, factor: FactorOf | None) -> tuple[LazyWeight, LazyWeight]:
    """Twice the E2M1 values, which int8 has exactly, and the scales of blocks."""
    weight, name = linear.weight, linear.name

    def values(rows: Array) -> Array:
        found = round_rows(rows, NVFP4, whole=whole, factor=factor, name=name)
        return (found.values * 2).astype(np.int8)

    def scales(rows: Array) -> Array:
        found = round_rows(rows, NVFP4, whole=whole, factor=factor, name=name)
        return found.scales.astype(_E4M3)

    groups = weight.rows_shape[1] // BLOCK
    return (
        weight.map_rows(values, ir.DataType.INT8),
        weight.map_rows(scales, ir.DataType.FLOAT8E4M3FN, width=groups),
    )
