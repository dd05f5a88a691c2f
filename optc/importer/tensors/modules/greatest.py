"""`adaptive_max_pool`, which PyTorch's exporter to ONNX does not translate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
from onnxscript import opset23 as op


def greatest(dims: int) -> Callable[..., Any]:
    """Values, and their places in the flat input, of windows that cover the last ``dims`` axes in
    so many steps: window i of n begins at floor(i·size / n) and ends at ceil((i + 1)·size / n)."""

    def pooled(x: Any, output_size: Sequence[int]) -> Any:
        values = x
        for axis, count in enumerate(output_size, start=-dims):
            rows, _ = windows(x, axis, count)
            # rows of the axis [.., count, width, ..], of which the largest stays
            picked = op.Gather(values, rows, axis=len(x.shape) + axis)
            inner = op.Constant(value_ints=[axis])
            values = op.ReduceMax(picked, inner, keepdims=0)
        return values, _places(x, output_size, dims)

    return pooled


def windows(x: Any, axis: int, count: Any) -> tuple[Any, Any]:
    """Places [count, width] along an axis, and which are within their window: one that is shorter
    repeats its last place."""
    size = op.Gather(op.Shape(x), op.Constant(value_int=len(x.shape) + axis))
    number, one = whole(count), whole(1)
    steps = op.Range(whole(0), number, one)
    first = op.Div(op.Mul(steps, size), number)
    ends = op.Add(op.Mul(op.Add(steps, one), size), op.Sub(number, one))
    last = op.Sub(op.Div(ends, number), one)
    widest = op.ReduceMax(op.Sub(last, first), keepdims=0)
    within = op.Range(whole(0), op.Add(widest, one), one)
    column = op.Constant(value_ints=[1])
    places, behind = op.Add(op.Unsqueeze(first, column), within), op.Unsqueeze(last, column)
    return op.Min(places, behind), op.LessOrEqual(places, behind)


def _places(x: Any, output_size: Sequence[int], dims: int) -> Any:
    """Of the first of the largest in each window, as places are counted over the last axes."""
    rank, parts = len(x.shape), x
    counts = list(output_size)
    flat = whole(0)
    # places of each window's elements in the flat input [n1, w1, n2, w2, ..]
    for index, count in enumerate(counts):
        rows, _ = windows(x, index - dims, count)
        size = op.Gather(op.Shape(x), op.Constant(value_int=rank - dims + index))
        parts = op.Gather(parts, rows, axis=rank - dims + 2 * index)
        spread = op.Constant(value_ints=[*range(2 * index), *range(2 * index + 2, 2 * dims)])
        own = op.Unsqueeze(rows, spread) if dims > 1 else rows
        flat = op.Add(op.Mul(flat, size), own)
    lead = list(range(rank - dims))
    order = [2 * one for one in range(dims)] + [2 * one + 1 for one in range(dims)]
    turned = op.Transpose(parts, perm=[*lead, *(rank - dims + one for one in order)])
    shape = op.Constant(value_ints=[*[0] * len(lead), *counts, -1])
    best = op.ArgMax(op.Reshape(turned, shape), axis=-1, keepdims=1)
    table = op.Reshape(op.Transpose(flat, perm=order), op.Constant(value_ints=[*counts, -1]))
    every = op.Expand(table, op.Shape(op.Reshape(turned, shape)))
    found = op.GatherElements(every, best, axis=-1)
    return op.Squeeze(found, op.Constant(value_ints=[-1]))


def whole(value: Any) -> Any:
    """A number as a constant; one that is computed as it is."""
    if not isinstance(value, int):
        return value
    return op.Constant(value=ir.tensor(value, ir.DataType.INT64))
