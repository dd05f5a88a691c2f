"""Memory that passes of calibration are predicted to take beside what there is before them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import onnx_ir as ir

from optc.ir.experts import find_expert_linears
from optc.ir.linear import Linear, head_of
from optc.passes.calibrating.predictions.text_shape import TextShape
from optc.passes.calibrating.targets import TOKENS_PER_INPUT
from optc.passes.numerics.gptq.rows import tile_rows
from optc.proof.reference.blockwise import HIDDEN_BYTES
from optc.proof.reference.calibration import MEMORY_BYTES
from optc.proof.reference.observers import linears_of
from optc.proof.reference.partition import Block, Partition, partition
from optc.proof.reference.running.rows import widest
from optc.proof.reference.streams.gram import BLOCK as GRAM_BLOCK
from optc.proof.reference.streams.gram import TOKENS

#: ONNX Runtime once it has run, and what Python's allocator keeps of earlier work (measured).
_RUNTIME = 60 << 20
#: A stage's float32 weights, and a packed copy of them while it runs.
_WEIGHT_COPIES = 2
#: Tiles that GPTQ rounds at once, and arrays of a tile's values that are alive then.
_TILES, _TILE_COPIES = 2, 5
#: Values of a chunk of windows that are alive at once, in widths of all inputs and results.
_VALUE_COPIES = 1
_FLOAT32, _FLOAT64 = 4, 8


def observing(model: ir.Model, text: TextShape, *, hessians: bool) -> int:
    """Peak of a run of the reference that notes ranges or Hessians of each layer's input."""
    parts = partition(model)
    hidden = 2 * _kept(text.tokens * _width(parts))
    return (
        _RUNTIME
        + hidden
        + _statistics(parts, model, 1 if hessians else 0)
        + max(_block_bytes(block, text, hessians=hessians) for block in parts.blocks)
    )


def propagating(
    model: ir.Model,
    text: TextShape,
    value_bytes: int,
    kept_bytes: int = 1,
    changing: Callable[[int, int], int] = lambda rows, columns: 0,
) -> int:
    """Peak of two runs side by side whose weights are corrected and changed on the way.

    Args:
        model: Dense form.
        text: What is run through it.
        value_bytes: Of a value and of a weight as they are multiplied (`Products.dtype`).
        kept_bytes: Of a weight as it is kept: 1 if it is quantized.
        changing: What it takes beside that to change the weights [rows, columns] that read one
            input; quantizing takes little.
    """
    parts = partition(model)
    width = _width(parts)
    values = text.tokens * sum(max(map(_inputs, map(linears_of, parts.blocks)), key=sum))
    streams = _kept(text.tokens * width)  # the embedded text
    streams += min(HIDDEN_BYTES, 2 * text.tokens * 2 * width * _FLOAT32 + values * value_bytes)
    return (
        _RUNTIME
        + streams
        + min(MEMORY_BYTES, kept_bytes * _kept_rows(parts))
        + max(
            *(
                _FLOAT32 * _experts(block)
                + max(
                    _original_bytes(block, text, value_bytes),
                    *_stages(block, width, text, value_bytes, rounds=kept_bytes == 1),
                )
                for block in parts.blocks
            ),
            *(changing(*shape) for block in parts.blocks for shape in _joint(linears_of(block))),
        )
    )


def rounding(model: ir.Model, kept: int, *, head_only: bool = False) -> int:
    """Bytes that GPTQ takes to read weights: ``kept`` factors, and one that is computed; or the
    factor of the head alone."""
    head = head_of(model)
    linears = [head] if head_only and head is not None else _all(partition(model), model)
    largest = max((linear.weight.rows_shape[1] for linear in linears), default=0) ** 2
    if head_only:  # H, and H in the order of rounding
        return largest * (2 * _FLOAT64 + _FLOAT32)
    return largest * (_FLOAT64 + (kept + 1) * _FLOAT32)


def _block_bytes(block: Block, text: TextShape, *, hessians: bool) -> int:
    linears = linears_of(block)
    widths = _inputs(linears)
    weights = sum(linear.weight.rows_shape[0] * linear.weight.rows_shape[1] for linear in linears)
    values = text.chunk * (sum(widths) + sum(one.weight.rows_shape[0] for one in linears))
    running = _FLOAT32 * (_WEIGHT_COPIES * weights + _experts(block) + _VALUE_COPIES * values)
    if not hessians:
        return running
    return running + sum(_FLOAT64 * k * k for k in widths) + _FLOAT32 * max(widths) ** 2


def _experts(block: Block) -> int:
    """Weights of the block's experts, which stay as they are, and which nothing packs."""
    return sum(one.weights for one in find_expert_linears(block.nodes))


def _original_bytes(block: Block, text: TextShape, value_bytes: int) -> int:
    """A block as it is: its weights, one of them in float32, and the values of a chunk."""
    linears = linears_of(block)
    sizes = [math.prod(linear.weight.rows_shape) for linear in linears]
    values = sum(_inputs(linears)) + sum(one.weight.rows_shape[0] for one in linears)
    chunk = _FLOAT32 * text.chunk * values * _VALUE_COPIES
    return value_bytes * sum(sizes) + _FLOAT32 * max(sizes, default=0) + chunk


def _stages(
    block: Block, width: int, text: TextShape, value_bytes: int, *, rounds: bool
) -> list[int]:
    """Of the layers that read one input [K], together: while sums over it are taken, while they are
    corrected and rounded by GPTQ, or otherwise changed, and while they run with other weights."""
    found = []
    by_input: dict[ir.Value, list[Linear]] = {}
    for linear in linears_of(block):
        by_input.setdefault(linear.x, []).append(linear)
    for readers in by_input.values():
        k = readers[0].weight.rows_shape[1]
        rows = [one.weight.rows_shape[0] for one in readers]
        replaced = _FLOAT32 * k * sum(rows)
        rounding = k * k * (_FLOAT64 + _FLOAT32)  # H, in the order of rounding, and its shares
        correction = drifting = 0
        if text.tokens >= TOKENS_PER_INPUT * k:
            # H and its root; the drift, and a chunk's, of a result [N, K] or an input [K, K]
            results = min(width, k) if rows == [width] else k
            correction = _FLOAT32 * k * results
            solving = 2 * _FLOAT64 * k * k + k * results * (_FLOAT64 + _FLOAT32)
            rounding = max(solving, rounding + correction)
            drifting = _FLOAT64 * k * k + k * results * (_FLOAT64 + 3 * _FLOAT32)
            drifting += _FLOAT32 * min(TOKENS, text.tokens) * (k + 2 * results)
        summing = _FLOAT64 * k * k + 2 * _FLOAT32 * k * (
            min(TOKENS, text.tokens) + min(GRAM_BLOCK, k)
        )
        # Values as bytes twice, as tiles and joined
        rounded = k * k * (_FLOAT64 + _FLOAT32) + correction + 2 * k * max(rows)
        if rounds:
            rounded += _TILES * _TILE_COPIES * _FLOAT32 * k * max(tile_rows(n, k) for n in rows)
        values = _FLOAT32 * text.chunk * 2 * (k + sum(rows))
        running = value_bytes * k * sum(rows) + values
        found.append(max(summing, drifting, rounding, rounded + replaced, replaced + running))
    return found


def _statistics(parts: Partition, model: ir.Model, copies: int) -> int:
    """Of arrays [K, K] for each input what the store keeps in memory while the last block runs."""
    blocks = [sum(k * k for k in _inputs(linears_of(block))) for block in parts.blocks]
    head = head_of(model)
    squares = sum(blocks) - max(blocks)
    squares += head.weight.rows_shape[1] ** 2 if head is not None else 0
    return min(MEMORY_BYTES, copies * _FLOAT64 * squares)


def _kept_rows(parts: Partition) -> int:
    """Of quantized rows, a byte a weight; their scales are little beside that."""
    linears = (linear for block in parts.blocks for linear in linears_of(block))
    return sum(one.weight.rows_shape[0] * one.weight.rows_shape[1] for one in linears)


def _all(parts: Partition, model: ir.Model) -> list[Linear]:
    head = head_of(model)
    found = [linear for block in parts.blocks for linear in linears_of(block)]
    return found if head is None else [*found, head]


def _inputs(linears: Iterable[Linear]) -> list[int]:
    """Widths K of the distinct inputs."""
    return list({linear.x: linear.weight.rows_shape[1] for linear in linears}.values()) or [0]


def _joint(linears: Iterable[Linear]) -> list[tuple[int, int]]:
    """[N, K] of the weights that read one input, put below each other."""
    found: dict[ir.Value, tuple[int, int]] = {}
    for linear in linears:
        n, k = linear.weight.rows_shape
        found[linear.x] = found.get(linear.x, (0, k))[0] + n, k
    return list(found.values()) or [(0, 0)]


def _kept(values: int) -> int:
    """Bytes of float32 values that lie in memory: more are in a file."""
    size = _FLOAT32 * values
    return size if size <= HIDDEN_BYTES else 0


def _width(parts: Partition) -> int:
    table = parts.embedding.const_value
    return max(widest(parts.blocks), 0 if table is None else int(table.shape.numpy()[-1]))
