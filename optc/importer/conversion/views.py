"""Tensors made of other tensors: each says which boxes of its parts a box of it is.

Nothing is read before a box is asked for, and no more than that box. So a layer of experts is never
in memory as a whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from optc.errors import InputError
from optc.importer.conversion.tensor import Float32, Leaf, Tensor
from optc.ir.stacked_weights import Box
from optc.ir.weights import Given

T = TypeVar("T")


class View(ABC):
    """A tensor made of others."""

    name: str

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @abstractmethod
    def made_of(self) -> Sequence[Tensor]:
        """The tensors."""

    @abstractmethod
    def read_box(self, box: Box) -> Float32:
        """The part of it that lies in ``box``."""

    @property
    def where(self) -> str:
        """File and name of its first part."""
        return self.made_of()[0].where

    @property
    def leaves(self) -> Sequence[Leaf]:
        """The tensors of files that it is made of."""
        return [leaf for part in self.made_of() for leaf in part.leaves]

    @property
    def given(self) -> Given | None:
        """The types of its quantized parts, whose grids a view does not keep unless it says so."""
        found = Given.joined([part.given for part in self.made_of()])
        return None if found is None else Given(found.label)

    def read_rows(self, start: int, stop: int) -> Float32:
        """Rows ``start:stop`` along axis 0 as float32, shape [stop - start, ...]."""
        return self.read_box(((start, stop), *((0, size) for size in self.shape[1:])))


@dataclass(frozen=True)
class Renamed(View):
    """A tensor under another name."""

    name: str
    part: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the part."""
        return self.part.shape

    def made_of(self) -> Sequence[Tensor]:
        """The part."""
        return [self.part]

    @property
    def given(self) -> Given | None:
        """That of the part."""
        return self.part.given

    def read_box(self, box: Box) -> Float32:
        """The same box of the part."""
        return self.part.read_box(box)

    def read_rows(self, start: int, stop: int) -> Float32:
        """The same rows of the part."""
        return self.part.read_rows(start, stop)


@dataclass(frozen=True)
class Stacked(View):
    """Tensors of one shape along a new first axis.

    Raises:
        InputError: Their shapes differ.
    """

    name: str
    parts: Sequence[Tensor]

    def __post_init__(self) -> None:
        """Check the shapes."""
        for part in self.parts:
            if part.shape != self.parts[0].shape:
                raise _other_shape(part, self.parts[0], "stacked")

    def made_of(self) -> Sequence[Tensor]:
        """The parts."""
        return self.parts

    @property
    def shape(self) -> tuple[int, ...]:
        """The parts' number and their shape."""
        return (len(self.parts), *self.parts[0].shape)

    @property
    def given(self) -> Given | None:
        """The parts' grids below each other, where they are matrices."""
        if len(self.shape) != 3:
            return super().given
        return Given.joined([part.given for part in self.parts])

    def read_box(self, box: Box) -> Float32:
        """The box of each part in the range of the first axis."""
        (start, stop), *inner = box
        return np.stack([part.read_box(tuple(inner)) for part in self.parts[start:stop]])


@dataclass(frozen=True)
class Joined(View):
    """Tensors one behind the other along an axis that they have.

    Raises:
        InputError: Their shapes differ in another axis.
    """

    name: str
    parts: Sequence[Tensor]
    axis: int

    def __post_init__(self) -> None:
        """Check the shapes."""
        for part in self.parts:
            if _without(part.shape, self.axis) != _without(self.parts[0].shape, self.axis):
                raise _other_shape(part, self.parts[0], "joined")

    def made_of(self) -> Sequence[Tensor]:
        """The parts."""
        return self.parts

    @property
    def shape(self) -> tuple[int, ...]:
        """The parts' sizes along the axis added up."""
        total = sum(part.shape[self.axis] for part in self.parts)
        return replaced(self.parts[0].shape, self.axis, total)

    @property
    def given(self) -> Given | None:
        """The parts' grids below each other, where they are joined so: matrices of three axes by
        the rows of each."""
        every = [part.given for part in self.parts]
        if self.axis == 0:
            return Given.joined(every)
        if self.axis != 1 or len(self.shape) != 3:
            return super().given
        return Given.joined(
            [
                None if given is None else given.taken(e * part.shape[1], (e + 1) * part.shape[1])
                for e in range(self.shape[0])
                for part, given in zip(self.parts, every, strict=True)
            ]
        )

    def read_box(self, box: Box) -> Float32:
        """The piece of each part that lies in the range of the axis."""
        found = [
            part.read_box(replaced(box, self.axis, inside)) for part, inside in self._inside(box)
        ]
        return np.concatenate(found, axis=self.axis) if len(found) != 1 else found[0]

    def _inside(self, box: Box) -> Iterator[tuple[Tensor, tuple[int, int]]]:
        start, stop = box[self.axis]
        low = 0
        for part in self.parts:
            high = low + part.shape[self.axis]
            if start < high and low < stop:
                yield part, (max(start, low) - low, min(stop, high) - low)
            low = high


@dataclass(frozen=True)
class Cut(View):
    """A range of a tensor along an axis.

    Raises:
        InputError: The tensor is shorter.
    """

    name: str
    part: Tensor
    axis: int
    start: int
    stop: int

    def __post_init__(self) -> None:
        """Check the size."""
        if self.part.shape[self.axis] < self.stop:
            raise InputError(
                f"the tensor has shape {list(self.part.shape)}, of whose axis {self.axis} "
                f"{self.name} takes {self.start} to {self.stop}",
                where=self.part.where,
                hint="is config.json the one of these weights?",
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the part but for the axis."""
        return replaced(self.part.shape, self.axis, self.stop - self.start)

    def made_of(self) -> Sequence[Tensor]:
        """The part."""
        return [self.part]

    @property
    def given(self) -> Given | None:
        """The grid of these rows, where rows are cut out."""
        given = self.part.given
        if self.axis or given is None:
            return super().given
        each = 1 if len(self.shape) < 3 else self.shape[1]
        return given.taken(self.start * each, self.stop * each)

    def read_box(self, box: Box) -> Float32:
        """The box, further along the axis."""
        start, stop = box[self.axis]
        return self.part.read_box(replaced(box, self.axis, (start + self.start, stop + self.start)))


def replaced(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    """The values with another one at ``at``."""
    return (*values[:at], value, *values[at + 1 :])


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _other_shape(part: Tensor, first: Tensor, how: str) -> InputError:
    return InputError(
        f"the tensor has shape {list(part.shape)}, and is {how} with {first.name}, which has "
        f"{list(first.shape)}",
        where=part.where,
        hint="is the checkpoint complete, and config.json its own?",
    )
