"""Candidates of a row, in order of their ids, and the filters that shorten the list.

A filter keeps the first candidates by rank whose weights sum to a limit: a candidate stays while
those before it do not reach the limit, lower ids come first among equals
(`optc.runtime.sampling.filters.first_by`). Weights are integers, so the result does not depend on
how it is
found: by halving the range of the ranks, of which ever fewer are still undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import (
    Expr,
    Register,
    absolute,
    bind,
    load,
    register,
    round_even,
    scratch,
    store,
)
from optc.backends.tvm.kernels.sampling.math import as_integer, f64, i64, mass

#: Float64 lanes of one vector.
WIDE = 8


@contextmanager
def when(condition: Expr) -> Iterator[None]:
    """Run the block if the condition holds."""
    with tir.If(condition), tir.Then():
        yield


@dataclass(frozen=True)
class Candidates:
    """Tokens that may be drawn.

    Attributes:
        count: int32 register: how many there are.
        ids: int32 [n] ascending.
        far: float64 [n] distances.
        mass: int64 [n].
        undecided: Scratch of `first_by`: float64 [n] ranks and int64 [n] weights.
    """

    count: Register
    ids: Expr
    far: Expr
    mass: Expr
    undecided: tuple[Expr, Expr]

    @classmethod
    def empty(cls, room: int) -> Candidates:
        """No candidates, with room for ``room``, a multiple of 8."""
        kinds = ("float64", "int64")
        far, weights = (scratch((room,), kind) for kind in kinds)
        ranks = tuple(scratch((room,), kind) for kind in kinds)
        count = register(0, "int32", 1)
        return cls(count, scratch((room,), "int32"), far, weights, (ranks[0], ranks[1]))

    def weigh(self) -> None:
        """Set the masses from the distances."""
        with tir.serial(0, (self.count.get() + (WIDE - 1)) // WIDE) as i:
            store(self.mass, mass(bind(load(self.far, i * WIDE, lanes=WIDE))), i * WIDE)

    def sum(self, value: Callable[[Expr], Expr]) -> Expr:
        """Sum of an int64 over the candidates."""
        total = register(i64(0), "int64", 1)
        with tir.serial(0, self.count.get()) as i:
            total.set(total.get() + value(i))
        return bind(total.get())

    def total(self) -> Expr:
        """Sum of the masses."""
        return self.sum(lambda i: self.mass[i])

    def mean(self, whole: Expr) -> Expr:
        """The mean distance, float64; ``whole`` is the sum of the masses."""

        def moment(i: Expr) -> Expr:
            return as_integer(round_even(tir.cast(self.mass[i], "float64") * self.far[i]))

        return bind(tir.cast(self.sum(moment), "float64") / tir.cast(whole, "float64"))

    def keep(self, condition: Callable[[Expr], Expr]) -> None:
        """Drop the candidates for which a condition does not hold; it is asked in order."""
        kept = register(0, "int32", 1)
        with tir.serial(0, self.count.get()) as i, when(condition(i)):
            at = bind(kept.get())
            store(self.ids, self.ids[i], at)
            store(self.far, self.far[i], at)
            store(self.mass, self.mass[i], at)
            kept.set(at + 1)
        self.count.set(kept.get())

    def first_by(self, limit: Expr, *, by_mass: bool, center: Expr | None = None) -> None:
        """Keep the first candidates whose weights sum to ``limit`` (int64).

        The rank is the distance, or how far it is from ``center``; the weight the mass, or 1.
        """

        def rank(i: Expr) -> Expr:
            return self.far[i] if center is None else absolute(self.far[i] - center)

        def weight(i: Expr) -> Expr:
            return self.mass[i] if by_mass else i64(1)

        last, before = self._last_rank(limit, rank, weight)
        reached = register(before, "int64", 1)

        def stays(i: Expr) -> Expr:
            mine = bind(rank(i))
            tied = bind(tir.And(mine == last, reached.get() < limit))
            reached.set(reached.get() + tir.Select(tied, weight(i), i64(0)))
            return tir.Or(mine < last, tied)

        self.keep(stays)

    def _last_rank(
        self, limit: Expr, rank: Callable[[Expr], Expr], weight: Callable[[Expr], Expr]
    ) -> tuple[Expr, Expr]:
        """The rank at which the limit is reached, and the weight of all lower ranks."""
        undecided = Undecided.all(self.undecided, self.count.get(), rank, weight)
        before = register(i64(0), "int64", 1)
        with tir.While(undecided.least.get() < undecided.most.get()):
            low, high = bind(undecided.least.get()), bind(undecided.most.get())
            middle = bind(low + (high - low) * f64(0.5))
            pivot = bind(tir.Select(middle < high, middle, low))
            share = undecided.weight_up_to(pivot)
            up = bind(before.get() + share < limit)
            before.set(before.get() + tir.Select(up, share, i64(0)))
            undecided.narrow(pivot, up)
        return bind(undecided.least.get()), bind(before.get())


@dataclass(frozen=True)
class Undecided:
    """Ranks among which the last one is still sought.

    Attributes:
        ranks, weights: [n].
        count: int32 register.
        least, most: float64 registers: the range of the ranks.
    """

    ranks: Expr
    weights: Expr
    count: Register
    least: Register
    most: Register

    @classmethod
    def all(
        cls,
        buffers: tuple[Expr, Expr],
        count: Expr,
        rank: Callable[[Expr], Expr],
        weight: Callable[[Expr], Expr],
    ) -> Undecided:
        """All candidates."""
        extremes = (register(f64(value), "float64", 1) for value in (float("inf"), -1.0))
        self = cls(*buffers, register(0, "int32", 1), *extremes)
        with tir.serial(0, count) as i:
            self._add(bind(rank(i)), weight(i))
        return self

    def _add(self, rank: Expr, weight: Expr) -> None:
        at = bind(self.count.get())
        store(self.ranks, rank, at)
        store(self.weights, weight, at)
        self.count.set(at + 1)
        self.least.set(tir.min(self.least.get(), rank))
        self.most.set(tir.max(self.most.get(), rank))

    def weight_up_to(self, pivot: Expr) -> Expr:
        """Sum of the weights of ranks up to ``pivot``."""
        total = register(i64(0), "int64", 1)
        with tir.serial(0, self.count.get()) as i:
            total.set(total.get() + tir.Select(self.ranks[i] <= pivot, self.weights[i], i64(0)))
        return bind(total.get())

    def narrow(self, pivot: Expr, up: Expr) -> None:
        """Keep only the ranks above ``pivot`` if ``up``, else only those up to it."""
        count = bind(self.count.get())
        self.count.set(tir.int32(0))
        self.least.set(f64(float("inf")))
        self.most.set(f64(-1.0))
        with tir.serial(0, count) as i:
            rank, weight = bind(self.ranks[i]), bind(self.weights[i])
            with when(tir.Select(up, rank > pivot, rank <= pivot)):
                self._add(rank, weight)
