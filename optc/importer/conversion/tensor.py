"""The interface of every tensor of a checkpoint, however it is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from optc.ir.stacked_weights import Box

if TYPE_CHECKING:
    from optc.ir.weights import Given

Float32 = npt.NDArray[np.float32]


class Leaf(Protocol):
    """Bytes of a file that a tensor is made of."""

    @property
    def file(self) -> Path:
        """The file."""

    @property
    def name(self) -> str:
        """Its name there."""

    @property
    def dtype(self) -> str:
        """Its type in the words of the file's format."""

    @property
    def offset(self) -> int:
        """Its first byte, from the start of the file."""

    @property
    def bytes(self) -> int:
        """Bytes that it takes."""


class Tensor(Protocol):
    """Numbers that are read on demand; nothing is kept."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def where(self) -> str:
        """File and name of what it is made of, for messages."""

    @property
    def leaves(self) -> Sequence[Leaf]:
        """The tensors of files that it is made of."""

    @property
    def given(self) -> Given | None:
        """The form in which the file holds it, where that is quantized; of three axes, the matrices
        below each other."""

    def read_rows(self, start: int, stop: int) -> Float32:
        """Rows ``start:stop`` along axis 0 as float32, shape [stop - start, ...]."""

    def read_box(self, box: Box) -> Float32:
        """The part of it that lies in ``box`` as float32."""


def box_by_rows(box: Box, shape: tuple[int, ...], read: Callable[[int, int], Float32]) -> Float32:
    """The part in ``box`` of matrices below each other, of which ``read`` gives whole rows.

    Args:
        box: At least two axes; all but the last two count matrices.
        shape: Of the tensor.
        read: ``read(start, stop)`` gives rows [stop - start, K] of all matrices in order.
    """
    *leading, (start, stop), columns = box
    rows = shape[-2]
    counts = [high - low for low, high in leading]
    found = []
    for index in np.ndindex(*counts):
        at = 0
        for size, (low, _), one in zip(shape[:-2], leading, index, strict=True):
            at = at * size + low + one
        found.append(read(at * rows + start, at * rows + stop)[:, slice(*columns)])
    return np.stack(found).reshape(*counts, *found[0].shape) if counts else found[0]


def same_content(left: Tensor, right: Tensor) -> bool:
    """True if both hold the same numbers, compared in pieces of 4 Mi elements."""
    if left.shape != right.shape:
        return False
    step = max(1, (4 << 20) // max(1, int(np.prod(left.shape[1:], dtype=np.int64))))
    return all(
        np.array_equal(left.read_rows(at, stop), right.read_rows(at, stop))
        for at in range(0, left.shape[0], step)
        for stop in [min(at + step, left.shape[0])]
    )
