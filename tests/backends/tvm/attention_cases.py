"""Ragged steps with paged pools for the attention tests, and a float64 oracle."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optc.backends.tvm.bias_runs import bias_runs
from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.attention.paged_attention import PagedAttention
from tests.backends.tvm.kernel_cases import Array, blank, run
from tests.backends.tvm.kv_pools import KV_TYPES, bf16_bits, bf16_value, garbage, put, represented


@dataclass(frozen=True)
class Sequence:
    """One sequence: its K and V [L,Hkv,d] and the queries [n,H,Dk] of its last n tokens."""

    q: Array
    k: Array
    v: Array


def sequences(config: PagedAttention, lengths: list[tuple[int, int]]) -> list[Sequence]:
    """Random sequences of (new rows, tokens)."""
    rng = np.random.default_rng(5)

    def draw(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    return [
        Sequence(
            2 * draw(rows, config.heads, config.key_dim),
            draw(tokens, config.kv_heads, config.key_dim),
            draw(tokens, config.kv_heads, config.value_dim),
        )
        for rows, tokens in lengths
    ]


def attend(
    config: PagedAttention, isa: Isa, step: list[Sequence], block_size: int, padding: int = 0
) -> Array:
    """Run one step: random block order, NaN in all unowned slots, -1 for released blocks."""
    rng = np.random.default_rng(block_size)
    counts = [-(-len(s.k) // block_size) for s in step]
    order = rng.permutation(sum(counts) + 3)
    tiles = len(order) * block_size // 16
    kept = [
        (config.group, config.kv_dtype, min(filter(None, (config.window, config.chunk)), default=0))
    ]
    if config.recent:
        kept.append((config.recent_group, "int8", config.recent))
    table = np.full((config.groups, len(step), max(counts) + 1), -1, np.int32)
    lengths = np.full((config.groups, len(step)), -7, np.int32)
    pools = []
    for group, dtype, reach in kept:
        k_pool = garbage(dtype, tiles, config.kv_heads, config.key_dim)
        v_pool = garbage(dtype, tiles, config.kv_heads, config.value_dim)
        lengths[group] = [len(s.k) for s in step]
        for b, (sequence, end) in enumerate(zip(step, np.cumsum(counts), strict=True)):
            blocks = order[end - counts[b] : end]
            tokens = np.arange(len(sequence.k))
            slots = blocks[tokens // block_size] * block_size + tokens % block_size
            put(k_pool, "k", dtype, slots, sequence.k)
            put(v_pool, "v", dtype, slots, sequence.v)
            first = 0
            if reach:
                first = max(len(tokens) - len(sequence.q) + 1 - reach, 0) // block_size
            table[group, b, first : counts[b]] = blocks[first:]
            of_block = np.arange(block_size // 16)
            released = np.ravel(blocks[:first, None] * (block_size // 16) + of_block)
            k_pool[released] = garbage(dtype, 1, config.kv_heads, config.key_dim)
        pools += [k_pool, v_pool]
        order = rng.permutation(order)
    starts = np.cumsum([0, *(len(s.q) for s in step)]).astype(np.int32)
    q = np.concatenate([s.q for s in step]).reshape(starts[-1], -1)
    q = np.concatenate([q, np.zeros((padding, q.shape[1]), np.float32)])
    out = blank(len(q), config.heads * config.value_dim)
    size = np.array([block_size], np.int32)
    of_heads = by_head(config)
    return run(config, isa, q, *pools, starts, lengths, table, size, *of_heads, out)[-1]


def by_head(config: PagedAttention) -> list[Array]:
    """The sinks and slopes [H] and runs of biases that the kernel takes: some sinks above all
    scores, some below."""
    sinks = np.linspace(-3, 9, config.heads).astype(np.float32)
    slopes = (2.0 ** -np.linspace(0, 6, config.heads)).astype(np.float32)
    return [
        *([sinks] if config.sinks else []),
        *([slopes] if config.slopes else []),
        *([bias_runs(biases(config))] if config.distances else []),
    ]


def biases(config: PagedAttention) -> Array:
    """Terms by distance [H, N]."""
    shape = config.heads, config.distances - 30
    return np.random.default_rng(8).standard_normal(shape).astype(np.float32)


def oracle(config: PagedAttention, step: list[Sequence]) -> Array:
    """The same in float64, on what the pools represent. With bfloat16 pools, queries and weights
    are rounded to bfloat16, too, and queries to int8 if the config says so."""
    narrow = config.kv_dtype == "bfloat16"
    rounded = "bfloat16" if narrow else "int8" if config.query_bits else "float32"
    rows = []
    for sequence in step:
        kept = [represented(a, config.kv_dtype) for a in (sequence.k, sequence.v)]
        latest = [represented(a, "int8") for a in (sequence.k, sequence.v)]
        queries = represented(sequence.q, rounded)
        for i, q in enumerate(queries.astype(np.float64)):
            own = len(sequence.k) - len(queries) + i
            end = own + 1
            far = end - config.recent if config.recent else len(sequence.k)
            keys, values = (
                np.concatenate([a[: max(far, 0)], b[max(far, 0) :]])
                for a, b in zip(kept, latest, strict=True)
            )
            low = max(end - config.window, 0) if config.window else 0
            low = max(low, (end - 1) // config.chunk * config.chunk) if config.chunk else low
            if not config.causal:
                end = min(own + config.window, len(keys)) if config.window else len(keys)
            k, v = (
                np.repeat(a[low:end].astype(np.float64), config.heads // config.kv_heads, axis=1)
                for a in (keys, values)
            )
            scores = np.einsum("thd,hd->ht", k, q) * config.scale
            if config.softcap:
                scores = config.softcap * np.tanh(scores / config.softcap)
            sinks = np.full((config.heads, 1), -np.inf)
            behind = np.arange(end - 1 - low, -1, -1)
            if config.slopes:
                scores -= by_head(config)[int(config.sinks)][:, None] * behind
            if config.distances:
                found = biases(config).astype(np.float64)
                scores += found[:, np.minimum(behind, found.shape[1] - 1)]
            if config.sinks:
                sinks = by_head(config)[0].astype(np.float64)[:, None] / np.log(2)
            powers = scores / np.log(2)
            largest = np.ceil(np.maximum(powers.max(axis=1, keepdims=True), sinks))
            weights = 2 ** (powers - largest)
            if narrow:
                weights = bf16_value(bf16_bits(weights)).astype(np.float64)
            weights /= weights.sum(axis=1, keepdims=True) + 2 ** (sinks - largest)
            rows.append(np.einsum("ht,thd->hd", weights, v).ravel())
    return np.array(rows)


def part(sequence: Sequence, start: int, stop: int) -> Sequence:
    """Rows start:stop of the sequence's new rows, as a step of their own would see them."""
    tokens = len(sequence.k) - len(sequence.q) + stop
    return replace(sequence, q=sequence.q[start:stop], k=sequence.k[:tokens], v=sequence.v[:tokens])


def check_rows_alone(config: PagedAttention, isa: Isa, step: list[Sequence]) -> None:
    """Each sequence alone, and some rows alone, have the bits that they have together."""
    together = attend(config, isa, step, 32)
    first = 0
    for sequence in step:
        rows = together[first : first + len(sequence.q)]
        first += len(sequence.q)
        np.testing.assert_array_equal(attend(config, isa, [sequence], 32), rows)
        for row in {0, len(rows) // 2, len(rows) - 1}:
            alone = attend(config, isa, [part(sequence, row, row + 1)], 32)
            np.testing.assert_array_equal(alone[0], rows[row])


#: KV types, and bits of queries: each its own arithmetic; int4's differs from int8's in unpacking.
ARITHMETICS = [*((dtype, 0) for dtype in KV_TYPES if dtype != "int4"), ("int8", 8), ("int4", 8)]
#: A step that is parallel, with tiles of one row and of several, split and not.
MIXED = [(1, 700), (5, 5), (37, 300), (1, 1), (1, 16), (6, 1000), (1, 257)]
SMALL = PagedAttention(4, 2, 64, 64, 0.125)
