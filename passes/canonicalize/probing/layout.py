"""In which order the dimensions of turning heads are put, so that one rotary operator turns them.

Queries and keys only meet in dot products: whatever order their dimensions have in common is as
good as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optc.passes.canonicalize.probing.read import Reading, Turn


@dataclass(frozen=True)
class Rotary:
    """Options of a ``RotaryEmbedding``.

    Attributes:
        frequencies: Of its pairs in order.
        factor: Of cos and sin.
        interleaved: Whether pairs are neighbours, or halves apart.
    """

    frequencies: tuple[float, ...]
    factor: float
    interleaved: bool


def common_order(readings: Sequence[Reading]) -> list[int]:
    """The old dimension at each new place, the same for all ``readings``.

    The first of these that a rotary operator can turn: the order of the operand's columns, which
    leaves weights as they are; the order that there is; first dimensions of pairs, second ones, the
    rest.
    """
    size = readings[0].columns.shape[1]
    natural = {tuple(np.argsort(reading.columns[0]).tolist()) for reading in readings}
    orders = [list(order) for order in natural] if len(natural) == 1 else []
    orders.append(list(range(size)))
    for order in orders:
        turns = [reading.turn for reading in readings if reading.turn is not None]
        if all(rotary_of(turn, order) is not None for turn in turns):
            return order
    turn = next(reading.turn for reading in readings if reading.turn is not None)
    first, second = ([pair[side] for pair in sorted(turn.pairs)] for side in (0, 1))
    rest = [dim for dim in range(size) if dim not in {*first, *second}]
    return [*first, *second, *rest]


def shared_first(readings: Sequence[Reading], order: Sequence[int]) -> list[int]:
    """``order`` with the dimensions before the others that all heads have of the same column, in
    one of ``readings``: what comes of two projections is joined in this way."""
    heads = [reading.columns for reading in readings if len(reading.columns) > 1]
    common = {d for columns in heads for d in order if (columns[:, d] == columns[0, d]).all()}
    return sorted(order, key=lambda dim: dim not in common)


def rotary_of(turn: Turn, order: Sequence[int]) -> Rotary | None:
    """The rotary operator that turns dimensions in ``order``; None if none does."""
    interleaved = _form(turn, order)
    if interleaved is None:
        turn = turn.other_way
        interleaved = _form(turn, order)
    if interleaved is None:
        return None
    place = {dim: index for index, dim in enumerate(order)}
    sorted_by = sorted(range(len(turn.pairs)), key=lambda i: place[turn.pairs[i][0]])
    frequencies = tuple(turn.frequencies[i] for i in sorted_by)
    return Rotary(frequencies, turn.factor, interleaved)


def _form(turn: Turn, order: Sequence[int]) -> bool | None:
    """True if pairs are neighbours (true) or halves apart (false) in ``order``; None if neither."""
    place = {dim: index for index, dim in enumerate(order)}
    pairs = sorted((place[a], place[b]) for a, b in turn.pairs)
    count = len(pairs)
    if pairs == [(i, i + count) for i in range(count)]:
        return False
    if pairs == [(2 * i, 2 * i + 1) for i in range(count)]:
        return True
    return None
