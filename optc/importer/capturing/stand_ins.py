"""Stand-ins for what a loop over experts computes in a turn, and what may be done with each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import resolve_name

from optc.errors import UnsupportedError
from optc.importer.capturing.experts import expert_matmul

EXPERT, SLOT, TOKEN = range(3)


class StandIn:
    """Something that a loop over experts computes; operators on it reach the mode that
    runs the loop. It is no number, so that nothing can branch on it."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Never called: the mode comes first.

        Raises:
            UnsupportedError: Always.
        """
        raise unknown(function)

    def __eq__(self, other: object) -> bool:
        raise UnsupportedError("a loop over experts treats some of them differently")

    def __bool__(self) -> bool:
        raise UnsupportedError("a loop over experts branches on what it computes")

    __hash__ = object.__hash__


@dataclass(frozen=True, eq=False)
class Chosen(StandIn):
    """The experts of each token, i64 [T, k]."""

    index: torch.Tensor

    @property
    def shape(self) -> torch.Size:
        """[T, k]."""
        return self.index.shape


@dataclass(frozen=True, eq=False)
class Weights(StandIn):
    """The weights of these, [T, k]."""

    values: torch.Tensor

    def __getitem__(self, places: object) -> Factor:
        *parts, column = places if isinstance(places, tuple) else (places,)
        axes = [part.axis for part in parts if isinstance(part, Places)]
        if axes == [TOKEN, SLOT] and len(parts) == 2 and column is None:
            return Factor(self.values)
        raise UnsupportedError("a loop over experts reads weights in a way that is not known")


@dataclass(frozen=True, eq=False)
class Mask(StandIn):
    """A mark for the expert of each slot of each token; axes in the order that they have."""

    index: torch.Tensor
    axes: tuple[int, ...]

    def permute(self, *order: int) -> Mask:
        """Axes in another order."""
        return Mask(self.index, tuple(self.axes[place] for place in order))

    def sum(self, dim: tuple[int, ...]) -> Counts:
        """The number of times that each expert is chosen.

        Raises:
            UnsupportedError: Something else is counted.
        """
        left = [axis for axis in range(3) if axis not in {place % 3 for place in dim}]
        if [self.axes[place] for place in left] != [EXPERT]:
            raise UnsupportedError("a loop over experts counts more than tokens")
        return Counts(self.index)

    def __getitem__(self, expert: object) -> Mask:
        if not isinstance(expert, Expert) or self.axes[0] != EXPERT:
            raise UnsupportedError("a loop over experts takes a part of its mask")
        return Mask(self.index, self.axes[1:])


@dataclass(frozen=True, eq=False)
class Counts(StandIn):
    """The number of times that each expert is chosen; ``hit``: whether it is at all."""

    index: torch.Tensor
    hit: bool = False

    def nonzero(self, *, as_tuple: bool = False) -> list[list[Expert]]:
        """One turn of the loop, for the expert that is hit.

        Raises:
            UnsupportedError: These are no places of a loop.
        """
        if not self.hit or as_tuple:
            raise UnsupportedError("a loop over experts visits others than those that are hit")
        return [[Expert(self.index)]]


@dataclass(frozen=True, eq=False)
class Expert(StandIn):
    """The expert of a turn."""

    index: torch.Tensor


@dataclass(frozen=True, eq=False)
class Places(StandIn):
    """The places of a turn's expert in the mask, along one axis."""

    axis: int


@dataclass(frozen=True, eq=False)
class Factor(StandIn):
    """The weights of the expert's tokens, a column."""

    values: torch.Tensor


@dataclass(frozen=True, eq=False)
class Matrix(StandIn):
    """The weight of the expert of a turn, of a stack; ``turned`` if it is seen transposed."""

    stack: torch.Tensor
    index: torch.Tensor
    turned: bool = False

    @property
    def T(self) -> Matrix:  # noqa: N802 - as tensors have it
        """The weight the other way round."""
        return Matrix(self.stack, self.index, not self.turned)

    def t(self) -> Matrix:
        """The weight the other way round."""
        return self.T


@dataclass(frozen=True, eq=False)
class Rows(StandIn):
    """Rows of the expert's tokens: [T, K] of which each is read by all its experts (``spread``), or
    [T, k, K]; ``factor`` once they are weighed."""

    values: torch.Tensor
    spread: bool = False
    factor: torch.Tensor | None = None

    def matmul(self, matrix: object) -> Rows:
        """Their product with the expert's weight [K, N].

        Raises:
            UnsupportedError: It is no product with one.
        """
        if not isinstance(matrix, Matrix) or self.factor is not None:
            raise UnsupportedError("a loop over experts multiplies rows by no expert's weight")
        transposed, spread = int(not matrix.turned), int(self.spread)
        inner = matrix.stack.shape[1 if transposed else 2]
        if inner != self.values.shape[-1]:
            raise UnsupportedError("a loop over experts multiplies rows of another width")
        product = expert_matmul(self.values, matrix.index, matrix.stack, None, transposed, spread)
        return Rows(product)

    def view(self, *shape: int) -> Rows:
        """The rows, of the width that they have.

        Raises:
            UnsupportedError: It is another width.
        """
        if shape != (-1, self.values.shape[-1]):
            raise UnsupportedError("a loop over experts puts rows in another shape")
        return self

    reshape = view

    def to(self, dtype: torch.dtype) -> Rows:
        """The rows in another type."""
        return Rows(self.values.to(dtype), spread=self.spread, factor=self.factor)

    def __mul__(self, other: object) -> Rows:
        if isinstance(other, Factor) and self.factor is None and not self.spread:
            return Rows(self.values, factor=other.values)
        return each(torch.mul, self, other)

    __rmul__ = __mul__

    def __add__(self, other: object) -> Rows:
        return each(torch.add, self, other)

    __radd__ = __add__

    def chunk(self, parts: int, dim: int) -> tuple[Rows, ...]:
        """Columns side by side.

        Raises:
            UnsupportedError: It cuts rows apart.
        """
        if dim not in (-1, 1) or self.spread or self.factor is not None:
            raise UnsupportedError("a loop over experts cuts rows apart")
        return tuple(Rows(part) for part in self.values.chunk(parts, -1))


def each(function: Callable[..., Any], *operands: object, **options: Any) -> Rows:
    """An element-wise function of rows and numbers.

    Raises:
        UnsupportedError: It reads something else.
    """
    rows = [one for one in operands if isinstance(one, Rows)]
    others = [one for one in operands if not isinstance(one, Rows)]
    alike = all(one.spread == rows[0].spread and one.factor is None for one in rows)
    plain = all(isinstance(one, int | float | str) for one in (*others, *options.values()))
    if not alike or not plain:
        raise UnsupportedError("a loop over experts computes with more than its rows")
    given = [one.values if isinstance(one, Rows) else one for one in operands]
    return Rows(function(*given, **options), spread=rows[0].spread)


def unknown(function: Any) -> UnsupportedError:
    """The refusal of an operator on stand-ins."""
    name = resolve_name(function) or getattr(function, "__name__", str(function))
    return UnsupportedError(f"{name} in a loop over experts is not known")
