"""Memory that passes of calibration are predicted to take beside what there is before them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from optc.ir.linear import Linear, head_of
from optc.passes.quantize.propagate.targets import TOKENS_PER_INPUT
from optc.reference.blockwise import BLOCK_ROWS, HIDDEN_BYTES
from optc.reference.calibration import MEMORY_BYTES
from optc.reference.observers import linears_of
from optc.reference.partition import Block, Partition, partition

#: ONNX Runtime once it has run, and what Python's allocator keeps of earlier work (measured).
_RUNTIME = 60 << 20
#: A stage's float32 weights, and ONNX Runtime's packed copy of them while it runs.
_WEIGHT_COPIES = 2
#: Values of a chunk of windows that are alive at once, in widths of all inputs and results.
_VALUE_COPIES = 1
_FLOAT32, _FLOAT64 = 4, 8


@dataclass(frozen=True)
class TextShape:
    """Windows of tokens."""

    windows: int
    window_tokens: int

    @property
    def tokens(self) -> int:
        """Of all windows."""
        return self.windows * self.window_tokens

    @property
    def chunk(self) -> int:
        """Tokens that go through a block at once."""
        return min(self.tokens, max(BLOCK_ROWS, self.window_tokens))


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


def propagating(model: ir.Model, text: TextShape) -> int:
    """Peak of two runs side by side whose weights are corrected and quantized on the way."""
    parts = partition(model)
    widest = max((_inputs(linears_of(block)) for block in parts.blocks), key=lambda ks: max(ks))
    streams = min(HIDDEN_BYTES, 2 * _FLOAT32 * text.tokens * (sum(widest) + 2 * _width(parts)))
    return (
        _RUNTIME
        + streams
        + min(MEMORY_BYTES, _kept_rows(parts))
        + max(
            _stage_bytes(linear, _width(parts), text)
            for block in parts.blocks
            for linear in linears_of(block)
        )
    )


def rounding(model: ir.Model, kept: int) -> int:
    """What GPTQ takes to read weights: ``kept`` factors, and one that is computed."""
    widths = [linear.weight.rows_shape[1] for linear in _all(partition(model), model)]
    largest = max(widths, default=0) ** 2
    return largest * (_FLOAT64 + (kept + 1) * _FLOAT32)


def _block_bytes(block: Block, text: TextShape, *, hessians: bool) -> int:
    linears = linears_of(block)
    widths = _inputs(linears)
    weights = sum(linear.weight.rows_shape[0] * linear.weight.rows_shape[1] for linear in linears)
    values = text.chunk * (sum(widths) + sum(one.weight.rows_shape[0] for one in linears))
    running = _FLOAT32 * (_WEIGHT_COPIES * weights + _VALUE_COPIES * values)
    if not hessians:
        return running
    return running + sum(_FLOAT64 * k * k for k in widths) + _FLOAT32 * max(widths) ** 2


def _stage_bytes(linear: Linear, width: int, text: TextShape) -> int:
    """Of one layer [N, K]: while its inputs are summed, corrected, or its weight is rounded."""
    n, k = linear.weight.rows_shape
    weights = _FLOAT32 * n * k * (_WEIGHT_COPIES + 1)  # and the one it is replaced by
    values = _FLOAT32 * text.chunk * _VALUE_COPIES * (n + k)
    residual = width * k * (_FLOAT64 + _FLOAT32) if n == width else 0
    square = k * k * (_FLOAT64 + 2 * _FLOAT32)  # the sum, a chunk's products; H, and its shares
    if text.tokens >= TOKENS_PER_INPUT * k and n < k:  # H, its root; the layer's rows, their drift
        square = 2 * _FLOAT64 * k * k + n * k * (_FLOAT64 + 2 * _FLOAT32)
    elif text.tokens >= TOKENS_PER_INPUT * k:
        square = k * k * (3 * _FLOAT64 + _FLOAT32)  # H, drift, its root; the mix
    return max(weights + values, residual + square)


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


def _kept(values: int) -> int:
    """Bytes of float32 values that lie in memory: more are in a file."""
    size = _FLOAT32 * values
    return size if size <= HIDDEN_BYTES else 0


def _width(parts: Partition) -> int:
    table = parts.embedding.const_value
    return 0 if table is None else int(table.shape.numpy()[-1])
