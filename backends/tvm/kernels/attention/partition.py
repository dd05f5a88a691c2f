"""Attention of a few query vectors over one partition of a sequence: 256 tokens, at fixed absolute
positions.

A query vector is one head of one row; all that share a KV head are computed together, so that each
K and V is loaded once for them. Whatever tile of vectors is computed, one vector's operations are
the same in the same order: a dot product runs over the dimensions, a weighted sum over the tokens,
both as one chain; masked tokens add exact zeros; the largest score is that of the whole partition.
"""

from __future__ import annotations

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.bias_runs import zero_distance
from optc.backends.tvm.kernels.attention.amx.scores import score_by_tiles
from optc.backends.tvm.kernels.attention.amx.values import weigh_by_tiles
from optc.backends.tvm.kernels.attention.blocking import for_blocks
from optc.backends.tvm.kernels.attention.fetch import fetch
from optc.backends.tvm.kernels.attention.score import score, score_unit
from optc.backends.tvm.kernels.attention.softmax import LEAST, MASKED, Running, merge_factors
from optc.backends.tvm.kernels.attention.state import (
    PARTITION,
    Part,
    Place,
    Pools,
    Queries,
    Shifts,
    new_buffers,
)
from optc.backends.tvm.kernels.attention.weigh import weigh
from optc.backends.tvm.kernels.dsl import math
from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    Expr,
    bind,
    fma,
    load,
    register,
    scratch,
    splat,
    store,
    tree_max,
    tree_sum,
)
from optc.backends.tvm.kernels.kv.pools import TILE
from optc.backends.tvm.kernels.matmul.amx import instructions as amx

#: Scales of values above are no numbers: slots that were never written, or not by this model.
_LARGEST_SCALE = 1.0e15


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
        following: The one that this thread most likely takes next; its keys are fetched.
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
    config = scratch((amx.CONFIG_BYTES,), "uint8") if size.amx else None
    if size.amx:
        amx.start_config(config)
        score_by_tiles(part, groups, config)
    else:
        with tir.serial(*groups) as group:
            for_blocks(
                size.vectors, size.score_block, lambda m, count: score(part, group, m, count)
            )
    if pools.numbers.scaled:
        _gather_value_scales(part)
    # Loop after loop over the vectors: what one leaves for the next, the processor computes while
    # it has begun with another vector.
    with tir.serial(0, queries.count) as m:
        low_seen, end_seen = queries.bounds(m)
        if queries.slope is not None:
            _lean(part, m, queries.slope(m), bind(queries.own(m) - start))
        if queries.shifts is not None:
            _shift(part, m, queries.shifts, bind(queries.own(m) - start))
        _mask(part, m, (bind(low_seen - start), bind(end_seen - start)))
        _find_largest(part, m)
    with tir.serial(0, queries.count) as m:
        _exponentials(part, m)
    with tir.serial(0, queries.count) as m:
        _settle(part, running, m)
    if size.amx:
        weigh_by_tiles(part, running, (first, end), config)
        amx.release()
        return
    for_blocks(
        size.vectors,
        size.weigh_block,
        lambda m, count: weigh(part, running, (first, end), m, count),
    )


def _gather_value_scales(part: Part) -> None:
    """The scales of the partition's values in order; 0 for what is no number."""
    pools = part.pools
    with tir.serial(*part.limits) as i:
        scales = pools.scales(pools.v, part.place.at(i), pools.shape.value_dim)
        known = tir.Select(scales < splat(_LARGEST_SCALE), scales, splat(0.0))
        store(part.buffers.scales, known, i * TILE)


def _unit(part: Part, m: Expr) -> Expr:
    """The unit of a masked score of vector m, in powers of two."""
    queries = part.queries
    scaled = queries.slope is not None or queries.shifts is not None
    return tir.float32(1) if scaled else score_unit(part, m)


def _lean(part: Part, m: Expr, slope: Expr, own: Expr) -> None:
    """Take from the scores of vector m, whose own token is ``own`` of the partition, its slope for
    each token of distance. Scores are powers of two from here on."""
    unit = bind(splat(score_unit(part, m)))
    per_token = bind(splat(slope * tir.float32(math.LOG2_E)))
    lane_numbers = tir.ramp(0, 1, LANES)
    with tir.serial(*part.limits) as i:
        ahead = bind(tir.cast(lane_numbers + splat(i * TILE - own, "int32"), f"float32x{LANES}"))
        score = fma(load(part.buffers.scores, m, i * TILE), unit, bind(ahead * per_token))
        store(part.buffers.scores, score, m, i * TILE)


def _shift(part: Part, m: Expr, shifts: Shifts, own: Expr) -> None:
    """Add to the scores of vector m, whose own token is ``own`` of the partition, what its head has
    for each token's distance. Scores are powers of two from here on."""
    leaning = part.queries.slope is not None
    unit = bind(splat(tir.float32(1) if leaning else score_unit(part, m)))
    log2_e = splat(tir.float32(math.LOG2_E))
    count, head = int(shifts.runs.shape[1]), shifts.head(m)
    with tir.serial(*part.limits) as i:
        place = bind(tir.max(tir.min(i * TILE - own + zero_distance(count), count - TILE), 0))
        bias = bind(load(shifts.runs, head, place) * log2_e)
        score = fma(load(part.buffers.scores, m, i * TILE), unit, bias)
        store(part.buffers.scores, score, m, i * TILE)


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


def _find_largest(part: Part, m: Expr) -> None:
    """Note the next integer from the largest masked score of vector m on, in powers of two."""
    buffers = part.buffers
    top = register(MASKED)
    with tir.serial(*part.limits) as i:
        fetch(part, "largest", i, m, part.queries.blocking.vectors)
        top.set(tir.max(top.get(), load(buffers.scores, m, i * TILE)))
    largest = bind(tree_max(top.get()) * _unit(part, m))
    store(buffers.largest, math.ceil(tir.max(largest, tir.float32(LEAST))), m)


def _exponentials(part: Part, m: Expr) -> None:
    """Turn the masked scores of vector m into weights 2 ** (score - largest), and, where tokens
    have scales, products with these."""
    numbers, buffers = part.pools.numbers, part.buffers
    unit = bind(splat(_unit(part, m)))
    largest = bind(splat(tir.float32(0) - buffers.largest[m]))
    sums, top = register(0.0), register(0.0)
    with tir.serial(*part.limits) as i:
        fetch(part, "exponentials", i, m, part.queries.blocking.vectors)
        weight = math.exp2(fma(load(buffers.scores, m, i * TILE), unit, largest))
        sums.set(sums.get() + numbers.put(buffers.weights, weight, m, i * TILE))
        if numbers.scaled:
            product = bind(weight * load(buffers.scales, i * TILE))
            store(buffers.scores, product, m, i * TILE)
            top.set(tir.max(top.get(), product))
    store(buffers.norms, tree_sum(sums.get()), m)
    if numbers.scaled:
        store(buffers.products, tree_max(top.get()), m)


def _settle(part: Part, running: Running, m: Expr) -> None:
    """Settle the operands of vector m, and how the partition is merged into its state."""
    numbers, buffers = part.pools.numbers, part.buffers
    old, new = merge_factors(running, m, bind(buffers.largest[m]), bind(buffers.norms[m]))
    if numbers.scaled:
        largest = bind(buffers.products[m])
        with tir.serial(*part.limits) as i:
            fetch(part, "settle", i, m, part.queries.blocking.vectors)
        numbers.settle(buffers.weights, buffers.scores, m, part.limits, largest)
        new = new * buffers.weights.factor[m]
    store(buffers.factors, old, m, 0)
    store(buffers.factors, new, m, 1)
