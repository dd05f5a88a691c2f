"""The state of an online softmax, and how partitions are merged into it, in order.

Powers are of two, and relative to an integer: merging multiplies by exact powers of two, and a
weight that is rounded to bfloat16 is rounded alike whatever else its partition holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl import math
from optc.backends.tvm.kernels.dsl.script import (
    Expr,
    bind,
    fma,
    lanes_of,
    load,
    scratch,
    splat,
    store,
)
from optc.backends.tvm.kernels.kv.pools import for_parts

#: Score of a token that is not seen, in whatever units.
MASKED = float("-inf")
#: Largest score of a vector that has seen no token; far below any real one, and finite.
LEAST = -1.0e30


@dataclass(frozen=True)
class Running:
    """Online softmax over partitions (Milakov and Gimelshein, 2018), M query vectors.

    Attributes:
        largest: float32 [M], the least integer that no score so far is above.
        norm: float32 [M], sum of 2 ** (score - largest).
        total: float32 [M, Dv], values weighted by 2 ** (score - largest).
    """

    largest: Expr
    norm: Expr
    total: Expr


def new_running(vectors: int, value_dim: int) -> Running:
    """Scratch for ``vectors`` query vectors that have seen nothing yet."""
    running = Running(scratch((vectors,)), scratch((vectors,)), scratch((vectors, value_dim)))
    with tir.serial(0, vectors) as m:
        store(running.largest, tir.float32(LEAST), m)
        store(running.norm, tir.float32(0), m)
        for_parts(value_dim, lambda d, lanes: store(running.total, splat(0.0, lanes=lanes), m, d))
    return running


def merge_factors(running: Running, m: Expr, largest: Expr, norm: Expr) -> tuple[Expr, Expr]:
    """Take a partition's largest score and norm into those of vector m; returns the factors of the
    old total and of the partition's. A partition without a seen token changes nothing."""
    before = bind(running.largest[m])
    after = bind(tir.max(before, largest))
    old = math.power_of_two(before - after)
    seen = largest > tir.float32(LEAST)
    new = bind(tir.Select(seen, math.power_of_two(largest - after), tir.float32(0)))
    store(running.largest, after, m)
    store(running.norm, fma(bind(running.norm[m]), old, bind(norm * new)), m)
    return old, new


def merge_total(running: Running, values: Expr, m: Expr, d: Expr, old: Expr, new: Expr) -> None:
    """Take a partition's weighted values into dimensions d.. of the total of vector m."""
    lanes = lanes_of(values)
    kept = bind(load(running.total, m, d, lanes=lanes))
    added = bind(values * splat(new, lanes=lanes))
    store(running.total, fma(kept, splat(old, lanes=lanes), added), m, d)
