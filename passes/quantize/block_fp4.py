"""NVFP4 weights: E2M1 values in blocks of 16, E4M3 scales of blocks, one scale of the tensor."""

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
from optc.passes.quantize.static_scales import storable

_E2M1, _E4M3 = ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn


def rewrite_block_fp4(model: ir.Model, linear: Linear, magnitude: float) -> None:
    """Replace a linear layer, its bias included, by ``optc::BlockFp4MatMul``.

    Args:
        model: The layer's.
        linear: K of its weight is a multiple of 16.
        magnitude: Largest of its input, on the text that it was calibrated with.
    """
    graph, name = model.graph, linear.name
    whole = _global_scale(_largest(linear.weight))
    metadata = sources_metadata(sources([linear]))
    emit = Emitter(graph, name)
    operands = [
        linear.x,
        add_initializer(graph, _doubled(linear.weight, whole), f"{name}.quantized", metadata),
        add_initializer(graph, _block_scales(linear.weight, whole), f"{name}.scale"),
        emit.constant("global_scale", whole),
        emit.constant("input_global_scale", _global_scale(magnitude)),
        linear.bias,
    ]
    node = make_node(model, "BlockFp4MatMul", operands, name=linear.matmul.name)
    replace_node(linear.nodes, [node], [linear.output], node.outputs)


def _global_scale(magnitude: float) -> Array:
    """What makes the scale of the block with the largest value the largest E4M3 number."""
    return storable(np.float32(magnitude / (FP4_MAX * FP8_MAX)))


def _largest(weight: LazyWeight) -> float:
    return max(float(np.abs(weight.read_rows(*tile)).max()) for tile in weight.tiles())


def _scales_of(rows: Array, whole: Array) -> Array:
    """E4M3 scales [n, K / 16] of rows [n, K], in units of the tensor's scale."""
    wide = rows.astype(np.float32, copy=False).reshape(len(rows), -1, BLOCK)
    relative = np.abs(wide).max(axis=2) / np.float32(FP4_MAX) / whole
    return np.minimum(relative, np.float32(FP8_MAX)).astype(_E4M3)


def _doubled(weight: LazyWeight, whole: Array) -> LazyWeight:
    """Twice the E2M1 values, which int8 has exactly."""

    def quantize(rows: Array) -> Array:
        scales = _scales_of(rows, whole).astype(np.float32) * whole
        blocks = rows.astype(np.float32, copy=False).reshape(*scales.shape, BLOCK)
        ratio = blocks / np.where(scales == 0, np.float32(1), scales)[..., None]
        values = np.clip(ratio, -FP4_MAX, FP4_MAX).astype(_E2M1)
        doubled: Array = (values.astype(np.float32) * 2).astype(np.int8)
        return doubled.reshape(rows.shape)

    return weight.map_rows(quantize, ir.DataType.INT8)


def _block_scales(weight: LazyWeight, whole: Array) -> LazyWeight:
    blocks = weight.rows_shape[1] // BLOCK
    return weight.map_rows(
        lambda rows: _scales_of(rows, whole), ir.DataType.FLOAT8E4M3FN, width=blocks
    )
