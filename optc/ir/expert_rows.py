"""Weights and biases of experts as rows below each other, whatever way a checkpoint stacks them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.stacked_weights import Box, StackedWeight
from optc.ir.weights import Array, LazyWeight


def expert_rows(
    weight: LazyWeight, *, transposed: bool = False, interleaved: bool = False
) -> LazyWeight:
    """The rows of all experts below each other: [E * N, K], seen transposed by a graph.

    Args:
        weight: [E, N, K].
        transposed: It is [E, K, N] instead: columns become rows.
        interleaved: Of N, the even ones come first, then the odd ones: what was gate, up, gate, up,
            … becomes all gates, then all ups.
    """
    stack = _stack(weight)
    if transposed:
        stack = stack.swap()
    if interleaved:
        stack = _evens_first(stack)
    return stack.fold().transpose()


def expert_vector(bias: LazyWeight, *, interleaved: bool = False) -> LazyWeight:
    """The rows of ``bias`` [E, N] as one vector [E * N]; ``interleaved`` as of `expert_rows`."""
    count, n = bias.rows_shape
    order = np.concatenate([np.arange(0, n, 2), np.arange(1, n, 2)]) if interleaved else slice(None)

    def read(start: int, stop: int) -> Array:
        first, last = start // n, -(-stop // n)
        rows = bias.read_rows(first, last)[:, order].reshape(-1)
        return np.ascontiguousarray(rows[start - first * n : stop - first * n])

    return LazyWeight(read, (count * n,), ir.DataType(bias.dtype), bias.name or "")


def scale_experts(weight: LazyWeight, factors: LazyWeight) -> LazyWeight:
    """Rows [E * N, ...] of experts, those of each times its factor [E]."""
    total, count = weight.rows_shape[0], factors.rows_shape[0]
    each = total // count

    def read(start: int, stop: int) -> Array:
        rows = weight.read_rows(start, stop)
        own = np.asarray(factors.read_rows(0, count))[np.arange(start, stop) // each]
        return rows * own.reshape(-1, *[1] * (rows.ndim - 1)).astype(rows.dtype)

    return LazyWeight(
        read,
        weight.rows_shape,
        ir.DataType(weight.dtype),
        weight.name or "",
        transposed=weight.transposed,
    )


def _stack(weight: LazyWeight) -> StackedWeight:
    """``weight`` [E, N, K] as a stack; one that is read by whole matrices stays so."""
    if isinstance(weight, StackedWeight):
        return weight
    count, n, k = weight.rows_shape

    def read(box: Box) -> Array:
        (first, last), rows, columns = box
        part: Array = weight.read_rows(first, last)[:, slice(*rows), slice(*columns)]
        return part

    return StackedWeight(read, (count, n, k), ir.DataType(weight.dtype), weight.name or "")


def _evens_first(stack: StackedWeight) -> StackedWeight:
    """The even rows of each matrix, then the odd ones."""
    count, n, k = stack.stacked_shape
    half = (n + 1) // 2

    def read(box: Box) -> Array:
        experts, (start, stop), columns = box
        parts = []
        for odd in (0, 1):
            low, high = (
                max(start - odd * half, 0),
                min(stop - odd * half, n - half if odd else half),
            )
            if low < high:
                taken = (2 * low + odd, 2 * (high - 1) + odd + 1)
                parts.append(stack.read_box((experts, taken, columns))[:, ::2])
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    return StackedWeight(read, (count, n, k), ir.DataType(stack.dtype), stack.name or "")
