"""Weights of experts: matrices of one shape, stacked, of which any rows are read alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from optc.ir.weights import Array, Given, LazyWeight

#: A range ``(start, stop)`` of every axis.
Box = tuple[tuple[int, int], ...]
BoxReader = Callable[[Box], Array]


class StackedWeight(LazyWeight):
    """A matrix [N, K] for each of E experts, [E, N, K]; one expert may be too large to be read.

    Args:
        read_box: ``read_box(box)`` gives that part of the weight in ``dtype``.
        shape: [E, N, K].
        dtype: Element type the reader returns.
        name: Name for messages.
        given: How the checkpoint holds the matrices below each other, where that is quantized.
    """

    def __init__(
        self,
        read_box: BoxReader,
        shape: tuple[int, int, int],
        dtype: ir.DataType,
        name: str,
        given: Given | None = None,
    ) -> None:
        _, n, k = shape
        super().__init__(
            lambda start, stop: read_box(((start, stop), (0, n), (0, k))),
            shape,
            dtype,
            name,
            given=given,
        )
        self.read_box = read_box
        self.stacked_shape = shape

    def read_expert(self, expert: int, start: int, stop: int) -> Array:
        """Rows ``start:stop`` of one matrix, [stop - start, K]."""
        box = ((expert, expert + 1), (start, stop), (0, self.stacked_shape[2]))
        rows: Array = self.read_box(box)[0]
        return rows

    def fold(self) -> LazyWeight:
        """The matrices below each other, [E * N, K], of which tiles are as small as of others."""
        experts, n, k = self.stacked_shape

        def read(start: int, stop: int) -> Array:
            parts = [
                self.read_expert(e, max(start - e * n, 0), min(stop - e * n, n))
                for e in range(start // n, -(-stop // n))
            ]
            return np.concatenate(parts) if len(parts) != 1 else parts[0]

        return LazyWeight(
            read, (experts * n, k), ir.DataType(self.dtype), self.name or "", given=self.given
        )

    def swap(self) -> StackedWeight:
        """Each matrix transposed, [E, K, N]."""
        experts, n, k = self.stacked_shape
        return StackedWeight(
            lambda box: np.ascontiguousarray(
                self.read_box((box[0], box[2], box[1])).swapaxes(1, 2)
            ),
            (experts, k, n),
            ir.DataType(self.dtype),
            self.name or "",
            None if self.given is None else Given(self.given.label),
        )


def stacked(weight: LazyWeight, count: int) -> StackedWeight:
    """Rows [E * N, K] as E matrices [N, K], any rows of which are read alone."""
    total, k = weight.rows_shape
    n = total // count

    def read(box: Box) -> Array:
        (first, last), (start, stop), (left, right) = box
        parts = [weight.read_rows(e * n + start, e * n + stop) for e in range(first, last)]
        part: Array = np.stack(parts)[:, :, left:right]
        return part

    return StackedWeight(read, (count, n, k), ir.DataType(weight.dtype), weight.name or "")
