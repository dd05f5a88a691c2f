"""Memory of passes that choose formats, scale and rotate weights, beside what there is before them.

Symbols: a layer W [N, K]; D, the width of the model.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from optc.ir.linear import find_linears
from optc.passes.calibrating.predictions.text_shape import TextShape
from optc.passes.calibrating.working_bytes import observing, rounding
from optc.passes.numerics.gptq.weights import KEPT
from optc.proof.reference.blockwise import HIDDEN_BYTES
from optc.proof.reference.calibration import MEMORY_BYTES
from optc.proof.reference.observers import linears_of
from optc.proof.reference.partition import Partition, partition
from optc.proof.reference.running.head import VOCAB_TILE

_FLOAT32, _FLOAT64 = 4, 8
#: A block's float32 weights, and a packed copy of one layer's while it runs.
_BLOCK_COPIES = 2
#: Logits of a tile of the vocabulary: of the model, of a variant, and what their divergence takes.
_LOGIT_COPIES = 4
#: Rows whose logits are compared at once (`optc.proof.reference.variants`).
_LOGIT_ROWS = 512
#: Rows of a weight that are mixed at a time, and copies of them (`folding.weights`).
_TILE, _TILE_COPIES = 256, 4


def allocating(model: ir.Model, text: TextShape, measured: TextShape, variants: int) -> int:
    """Peak of measuring what formats lose: Hessians over ``text``, then GPTQ in each format, then
    as many ``variants`` of the model side by side over windows ``measured``."""
    parts = partition(model)
    squares = [k * k for k in _widths(model)]
    kept = left_hessians(model)
    factors = rounding(model, KEPT)
    errors = _FLOAT64 * max(squares, default=0)  # H, in memory where it was in a file
    return max(
        observing(model, text, hessians=True),
        kept + errors + factors,
        kept + factors + _variants(parts, measured, variants),
    )


def measuring(model: ir.Model, text: TextShape, variants: int) -> int:
    """Peak of comparing so many ``variants`` of the model with it over a text, side by side."""
    return _variants(partition(model), text, variants)


def left_hessians(model: ir.Model) -> int:
    """Bytes that the store keeps in memory of the Hessians of all inputs."""
    return min(MEMORY_BYTES, _FLOAT64 * sum(k * k for k in _widths(model)))


def left_rows(model: ir.Model, kept_bytes: int) -> int:
    """Bytes that the store keeps in memory of the body's weights, at ``kept_bytes`` a weight."""
    linears = (one for block in partition(model).blocks for one in linears_of(block))
    weights = sum(one.weight.rows_shape[0] * one.weight.rows_shape[1] for one in linears)
    return min(MEMORY_BYTES, kept_bytes * weights)


def scaling(model: ir.Model, *, searched: bool) -> int:
    """Peak of `smooth` where AWQ's exponent is searched: Hessians that are scaled, and that of one
    input in float64 and float32. Statistics of channels are little."""
    if not searched:
        return 0
    largest = max((k * k for k in _widths(model)), default=0)
    return left_hessians(model) + largest * (2 * _FLOAT64 + _FLOAT32)


def turning(model: ir.Model) -> int:
    """Peak of `rotate`, and of reading what it leaves: the rotation [D, D] and its transpose, the
    model's two products by them, and tiles of the widest weight."""
    _, width = _table(partition(model))
    return width * width * (2 * _FLOAT64 + 4 * _FLOAT32) + turned(model)


def turned(model: ir.Model) -> int:
    """Bytes to read a tile of the widest weight that is mixed, on two threads."""
    return 2 * _TILE_COPIES * _FLOAT32 * _TILE * max(_widths(model), default=0)


def _variants(parts: Partition, text: TextShape, variants: int) -> int:
    vocabulary, width = _table(parts)
    weights = [sum(map(_elements, _read(block.nodes))) for block in parts.blocks]
    hidden = min(HIDDEN_BYTES, _FLOAT32 * (variants + 1) * text.tokens * width)
    tile = min(VOCAB_TILE, vocabulary)
    head = _FLOAT32 * tile * (2 * width + _LOGIT_COPIES * min(_LOGIT_ROWS, text.tokens))
    return int(hidden + max(_BLOCK_COPIES * _FLOAT32 * max(weights, default=0), head))


def _read(nodes: Iterable[ir.Node]) -> list[ir.Value]:
    return list(dict.fromkeys(v for node in nodes for v in node.inputs if v is not None))


def _elements(value: ir.Value) -> int:
    """Of an initializer; 0 of other values."""
    return 0 if value.const_value is None else int(value.const_value.size)


def _widths(model: ir.Model) -> list[int]:
    """K of each distinct input of linear layers."""
    found = {linear.x: linear.weight.rows_shape[1] for linear in find_linears(model)}
    return list(found.values())


def _table(parts: Partition) -> tuple[int, int]:
    """Rows and columns of the embedding."""
    shape = () if parts.embedding.shape is None else parts.embedding.shape.numpy()
    rows, columns = shape
    return int(rows), int(columns)
