"""Attention of a few query vectors over one partition of a sequence: 256 tokens, at fixed absolute
positions.

A query vector is one head of one row; all that share a KV head are computed together, so that each
K and V is loaded once for them. Whatever tile of vectors is computed, one vector's operations are
the same in the same order: a dot product runs over the dimensions, a weighted sum over the tokens,
both as one chain; masked tokens add exact zeros; the largest score is that of the whole partition.
"""

from __future__ import annotations

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels import math
from optc.backends.tvm.kernels.attention_blocking import for_blocks
from optc.backends.tvm.kernels.attention_int8 import STEPS
from optc.backends.tvm.kernels.attention_score import score
from optc.backends.tvm.kernels.attention_softmax import MASKED, Running, merge_factors
from optc.backends.tvm.kernels.attention_state import (
    PARTITION,
    Part,
    Place,
    Pools,
    Queries,
    new_buffers,
)
from optc.backends.tvm.kernels.attention_weigh import weigh
from optc.backends.tvm.kernels.pools import TILE
from optc.backends.tvm.kernels.script import (
    LANES,
    Expr,
    bind,
    load,
    register,
    splat,
    store,
    tree_max,
    tree_sum,
)

#: Scales of values above are no numbers: slots that were never written, or not by this model.
_LARGEST_SCALE = 1.0e15
#: Scales below count as this, so that quotients of two stay finite.
_LEAST_SCALE = 1.0e-15


def attend_partition(
    pools: Pools,
    queries: Queries,
    running: Running,
    place: Place,
    following: Place,
    seen: tuple[Expr, Expr],
) -> None:
    """Take a partition into ``running``.

    Args:
        pools: K and V.
        queries: The query vectors.
        running: Their state.
        place: The partition.
        following: The one that this thread takes next; its keys are fetched.
        seen: Range of tokens that at least one vector sees; some of it lies in the partition.
    """
    size, start = queries.blocking, place.start
    first = bind(tir.max(seen[0] - start, 0))
    end = bind(tir.min(seen[1] - start, PARTITION))
    groups = (
        bind(first // (size.tiles * TILE)),
        bind((end + (size.tiles * TILE - 1)) // (size.tiles * TILE)),
    )
    limits = (bind(groups[0] * size.tiles), bind(groups[1] * size.tiles))
    part = Part(pools, queries, new_buffers(pools, size), place, following, limits)
    if pools.numbers.scaled:
        _gather_value_scales(part)
    with tir.serial(*groups) as group:
        for_blocks(size, lambda m, count: score(part, group, m, count))
    with tir.serial(0, size.vectors) as m:
        low_seen, end_seen = queries.bounds(m)
        own = (bind(low_seen - start), bind(end_seen - start))
        _mask(part, m, own)
        largest, norm = _exponentials(part, m)
        old, new = merge_factors(running, m, largest, norm)
        if pools.numbers.scaled:
            new = new * part.buffers.weights.factor[m]
        store(part.buffers.factors, old, m, 0)
        store(part.buffers.factors, new, m, 1)
    for_blocks(size, lambda m, count: weigh(part, running, (first, end), m, count))


def _gather_value_scales(part: Part) -> None:
    """The scales of the partition's values in order; 0 for what is no number."""
    pools = part.pools
    with tir.serial(*part.limits) as i:
        tile = bind(part.place.tiles[i])
        scales = pools.scales(pools.v, tile, part.head, pools.shape.value_dim)
        known = tir.Select(scales < splat(_LARGEST_SCALE), scales, splat(0.0))
        store(part.buffers.scales, known, i * TILE)


def _mask(part: Part, m: Expr, seen: tuple[Expr, Expr]) -> None:
    """Mask the scores of vector m, which sees tokens ``seen`` of the partition."""
    first, end = part.limits
    whole = bind(tir.max(tir.min((seen[0] + (TILE - 1)) // TILE, end), first))
    whole_end = bind(tir.max(tir.min(seen[1] // TILE, end), whole))
    lane_numbers = tir.ramp(0, 1, LANES)
    for edge in ((first, whole), (whole_end, end)):
        with tir.serial(*edge) as i:
            token = bind(lane_numbers + splat(i * TILE))
            value = load(part.buffers.scores, m, i * TILE)
            value = tir.Select(token < splat(seen[1]), value, splat(MASKED))
            value = tir.Select(token >= splat(seen[0]), value, splat(MASKED))
            store(part.buffers.scores, value, m, i * TILE)


def _fetch_rest(part: Part, i: Expr, m: Expr) -> None:
    """Fetch a vector's part of what is fetched during the softmax, for one tile of values and one
    of the keys that follow."""
    vectors = part.queries.blocking.vectors
    value, key = bind(part.place.tiles[i]), bind(part.following.tiles[i])
    part.pools.fetch_value(value, part.head, m, vectors, rest=True)
    part.pools.fetch_key(key, part.following.head, m, vectors, rest=True)


def _exponentials(part: Part, m: Expr) -> tuple[Expr, Expr]:
    """Turn the masked scores of vector m into weights 2 ** (score - largest), as operands; returns
    the next integer from the largest score on, and the weights' sum."""
    numbers, buffers = part.pools.numbers, part.buffers
    top, top_scale = register(MASKED), register(0.0)
    with tir.serial(*part.limits) as i:
        if part.queries.fetch:
            _fetch_rest(part, i, m)
        value = bind(load(buffers.scores, m, i * TILE))
        top.set(tir.max(top.get(), value))
        if numbers.scaled:
            is_seen = value > splat(MASKED)
            scale = tir.Select(is_seen, load(buffers.scales, i * TILE), splat(0.0))
            top_scale.set(tir.max(top_scale.get(), scale))
    largest = bind(math.ceil(tree_max(top.get())))
    # Without a token that is seen there is no scale, and all scores are masked.
    scale = bind(tir.max(tree_max(top_scale.get()), tir.float32(_LEAST_SCALE)))
    steps = bind(splat(tir.float32(STEPS) / scale))
    sums, stored = register(0.0), register(0, "int32")
    with tir.serial(*part.limits) as i:
        weight = math.exp2(load(buffers.scores, m, i * TILE) - splat(largest))
        units = load(buffers.scales, i * TILE) * steps if numbers.scaled else None
        counted = numbers.put(buffers.weights, weight, m, i * TILE, units, stored)
        sums.set(sums.get() + counted)
    numbers.close(buffers.weights, m, scale / tir.float32(STEPS), stored)
    return largest, tree_sum(sums.get())
