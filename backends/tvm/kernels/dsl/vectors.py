"""Rows as vectors of 16 lanes, with a masked tail where the width is no multiple of 16."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    Expr,
    Register,
    load,
    register,
    store,
    tree,
)

#: Partial results of a reduction over a row: enough to hide the latency of one addition.
PARTIALS = 4


def load_part(buffer: Expr, count: int, *indices: Expr | int) -> Expr:
    """16 lanes of the last axis from ``indices`` on, of which all from ``count`` on are zero."""
    if count == LANES:
        return load(buffer, *indices)
    dtype = f"{buffer.dtype}x{LANES}"
    columns = tir.ramp(indices[-1], 1, LANES)
    mask = first_lanes(count)
    loaded = tir.masked_load(dtype, buffer, *indices[:-1], columns, mask)
    return tir.Select(mask, loaded, tir.broadcast(tvm.tirx.const(0, buffer.dtype), LANES))


def store_part(buffer: Expr, value: Expr, count: int, *indices: Expr | int) -> None:
    """Store the first ``count`` of 16 lanes along the last axis from ``indices`` on."""
    if count == LANES:
        store(buffer, value, *indices)
    else:
        columns = tir.ramp(indices[-1], 1, LANES)
        tir.evaluate(tir.masked_store(buffer, value, *indices[:-1], columns, first_lanes(count)))


def first_lanes(count: int) -> Expr:
    """A mask that holds in the first ``count`` of 16 lanes."""
    return tir.ramp(0, 1, LANES) < tir.broadcast(tir.int32(count), LANES)


def for_vectors(width: int, body: Callable[[Expr | int, int], None]) -> None:
    """``body(offset, count)`` for every vector of a row; only the last may have count < 16."""
    whole, rest = divmod(width, LANES)
    if whole:
        with tir.serial(0, whole) as i:
            body(i * LANES, LANES)
    if rest:
        body(whole * LANES, rest)


def reduce_row(
    width: int,
    start: float,
    body: Callable[[Register, Expr | int, int], None],
    combine: Callable[[Expr, Expr], Expr],
) -> Expr:
    """Reduce a row in a fixed order: 4 partial vectors in turn, then a tree.

    ``body(partial, offset, count)`` takes one vector of the row into a partial result; lanes from
    ``count`` on are zero when read with `load_part`.
    """
    partials = [register(start) for _ in range(PARTIALS)]
    whole, rest = divmod(width, LANES)
    rounds, left = divmod(whole, PARTIALS)
    if rounds:
        with tir.serial(0, rounds) as i:
            for j, partial in enumerate(partials):
                body(partial, (i * PARTIALS + j) * LANES, LANES)
    for j in range(left):
        body(partials[j], (rounds * PARTIALS + j) * LANES, LANES)
    if rest:
        body(partials[left], whole * LANES, rest)
    first, second, third, fourth = (partial.get() for partial in partials)
    return tree(combine(combine(first, second), combine(third, fourth)), combine)
