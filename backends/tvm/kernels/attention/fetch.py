"""Data that a partition fetches as it computes: its own values, and the keys of the following one.

For few rows memory is the limit, and it should be as busy in one loop as in the next. So each loop
over the tiles fetches some quarters of each tile: the softmax takes a good part of the time of
narrow types, little of that of float32.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.attention.state import At, Part, Pools
from optc.backends.tvm.kernels.dsl.script import Expr, prefetch, wide

#: Of a line of the cache.
_LINE_BYTES = 64
#: Loops over a partition's tiles, in the order of time.
Loop = Literal["score", "largest", "exponentials", "settle", "weigh"]
_Shares = dict[Loop, tuple[int, int]]

_WHOLE: tuple[_Shares, _Shares] = ({"score": (0, 4)}, {"weigh": (0, 4)})
#: First and last quarter of a tile of values, and of one of keys, that a loop fetches. `settle` is
#: a loop of types with scales only.
_NARROW: tuple[_Shares, _Shares] = (
    {"score": (0, 2), "largest": (2, 3), "exponentials": (3, 4)},
    {"exponentials": (0, 1), "weigh": (1, 4)},
)
_SCALED: tuple[_Shares, _Shares] = (
    _NARROW[0],
    {"exponentials": (0, 1), "settle": (1, 2), "weigh": (2, 4)},
)


def fetch(part: Part, loop: Loop, i: Expr, turn: Expr, turns: int) -> None:
    """Fetch into the second-level cache what a loop has to fetch of tile ``i``, in one of ``turns``
    equal parts."""
    pools, shape = part.pools, part.pools.shape
    values, keys = (
        _WHOLE if shape.dtype == "float32" else _SCALED if pools.numbers.scaled else _NARROW
    )
    if loop not in values and loop not in keys:
        return
    with tir.If(part.queries.fetch), tir.Then():
        if loop in values:
            tile = (pools.v, part.place.at(i), shape.value_dim)
            _fetch_quarters(pools, tile, values[loop], (turn, turns))
        if loop in keys:
            tile = (pools.k, part.following.at(i), shape.key_dim)
            _fetch_quarters(pools, tile, keys[loop], (turn, turns))


def fetch_scales(part: Part, i: Expr, *, keys: bool) -> None:
    """Fetch the scales of tile ``i`` of the values, or of the keys that follow."""
    pools, shape = part.pools, part.pools.shape
    if not pools.numbers.scaled:
        return
    with tir.If(part.queries.fetch), tir.Then():
        if keys:
            prefetch(pools.k, *part.following.at(i), wide(shape.type.scales_at(shape.key_dim)))
        else:
            prefetch(pools.v, *part.place.at(i), wide(shape.type.scales_at(shape.value_dim)))


def _fetch_quarters(
    pools: Pools, tile: tuple[Expr, At, int], quarters: tuple[int, int], turns: tuple[Expr, int]
) -> None:
    pool, at, dim = tile
    line = _LINE_BYTES // np.dtype(pools.shape.type.element).itemsize
    lines = pools.shape.type.scales_at(dim) // line
    first, end = (lines * quarter // 4 for quarter in quarters)
    turn, count = turns
    each = -(-(end - first) // count) if end > first else 0
    for offset in range(first, first + each):
        prefetch(pool, *at, wide(tir.min(turn * each + offset, end - 1)) * line)
