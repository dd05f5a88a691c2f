"""Weights that several tensors of a file stand for: on a grid that engines have, or decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.importer.conversion.tensor import Float32, box_by_rows
from optc.importer.safetensors import StoredTensor
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile
from optc.ir.stacked_weights import Box
from optc.ir.weights import Given

#: Columns that share a scale in engines.
_GROUPS = (128, 64, 32)
_LARGEST = np.finfo(np.float16).max


@dataclass(frozen=True)
class GridTensor:
    """A matrix on a grid that engines have.

    Attributes:
        label: The format, for reports.
        rows: Values, scales and zero points.
        leaves: The tensors of the file that it is made of.
    """

    label: str
    rows: QuantizedRows
    leaves: Sequence[StoredTensor]

    @property
    def name(self) -> str:
        """The weight's name."""
        return self.rows.name

    @property
    def shape(self) -> tuple[int, ...]:
        """[N, K]."""
        return (self.rows.rows, self.rows.columns)

    @property
    def where(self) -> str:
        """File and name of its first tensor."""
        return self.leaves[0].where

    @property
    def given(self) -> Given:
        """Its grid."""
        return Given(self.label, self.rows)

    def read_rows(self, start: int, stop: int) -> Float32:
        """Rows ``start:stop`` dequantized."""
        return self.rows.floats(start, stop)

    def read_box(self, box: Box) -> Float32:
        """The part that lies in ``box``, dequantized."""
        (start, stop), columns = box
        return self.read_rows(start, stop)[:, slice(*columns)]


@dataclass(frozen=True)
class DecodedTensor:
    """A weight in a type that is none of the grids which engines have.

    Attributes:
        name: The weight's name.
        label: The format, for reports.
        shape: [N, K], or [E, N, K] of experts.
        decode: ``decode(start, stop)`` gives rows of all matrices below each other as float32.
        leaves: The tensors of the file that it is made of.
    """

    name: str
    label: str
    shape: tuple[int, ...]
    decode: Callable[[int, int], Float32]
    leaves: Sequence[StoredTensor]

    @property
    def where(self) -> str:
        """File and name of its first tensor."""
        return self.leaves[0].where

    @property
    def given(self) -> Given:
        """The format's label."""
        return Given(self.label)

    def read_rows(self, start: int, stop: int) -> Float32:
        """Rows ``start:stop`` along axis 0, decoded."""
        return self.read_box(((start, stop), *((0, size) for size in self.shape[1:])))

    def read_box(self, box: Box) -> Float32:
        """The part that lies in ``box``, decoded."""
        return box_by_rows(box, self.shape, self.decode)


def engine_grid(rows: QuantizedRows) -> QuantizedRows | None:
    """Rows whose groups are as engines have them, with scales of float16; None if they cannot be.

    Groups larger than those of engines are cut, and so are channels of fewer than 8 bits, which
    have a scale for each group of it then.
    """
    size = rows.group_size or rows.columns
    if not rows.group_size and rows.bits == 8 and rows.symmetric:
        return rows
    wanted = next((one for one in _GROUPS if size % one == 0 and rows.columns % one == 0), None)
    if wanted is None:
        return None
    times, read, name = size // wanted, rows.read, rows.name

    def cut(start: int, stop: int) -> QuantizedTile:
        tile = read(start, stop)
        n = len(tile.values)
        scales = np.repeat(tile.scales.reshape(n, -1), times, axis=1)
        if not (np.abs(scales) <= _LARGEST).all():
            raise InputError(
                "the weight has scales that no float16 holds", where=name, hint="is it damaged?"
            )
        zeros = tile.zero_points
        return QuantizedTile(
            tile.values,
            scales.astype(np.float16).astype(np.float32),
            None if zeros is None else np.repeat(zeros.reshape(n, -1), times, axis=1),
        )

    return replace(rows, read=cut, group_size=wanted)


def grid_or_decoded(
    label: str, rows: QuantizedRows, leaves: Sequence[StoredTensor]
) -> GridTensor | DecodedTensor:
    """The weight on its grid where engines have that, else decoded."""
    grid = engine_grid(rows)
    if grid is not None:
        return GridTensor(label, grid, leaves)
    return DecodedTensor(rows.name, label, (rows.rows, rows.columns), rows.floats, leaves)


def unpacked(words: npt.NDArray[np.int32], bits: int) -> npt.NDArray[np.uint8]:
    """Values of the last axis, the lowest bits of each word first: [..., W] -> [..., W*32/bits]."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    parts = words.view(np.uint32)[..., None] >> shifts & np.uint32((1 << bits) - 1)
    return parts.astype(np.uint8).reshape(*words.shape[:-1], -1)
