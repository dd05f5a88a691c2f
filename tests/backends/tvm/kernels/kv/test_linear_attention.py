"""Linear attention of ragged steps against float64, states before them in the pools."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from optc.backends.tvm.kernels.kv.linear_attention import LinearAttention
from optc.backends.tvm.kv_layout import TILE
from optc.errors import UnsupportedError
from tests.backends.tvm.kernel_cases import TARGETS, Array, blank, isa_named, run
from tests.support import oracle

BLOCK = 32
TILES = BLOCK // TILE
Rows = tuple[Array, Array, Array, Array, Array]


def rows_of(config: LinearAttention, count: int, seed: int) -> Rows:
    """q, k, v, decay, beta; keys of length 1, as the delta rule wants them."""
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((2, count, config.key_heads, config.key_dim))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    v = rng.standard_normal((count, config.heads * config.value_dim))
    each = config.value_dim if config.rates else config.decays
    decay = -rng.exponential(0.3, (count, config.heads * each))
    beta = rng.random((count, config.heads))
    if config.rates:
        decay = -decay
    drawn = (x.reshape(count, -1).astype(np.float32) for x in (q, k, v, decay, beta))
    return tuple(drawn)  # type: ignore[return-value]


def rates_of(config: LinearAttention) -> list[Array]:
    """Rates [Dk,H*Dv], if the kernel has them."""
    rng, shape = np.random.default_rng(8), (config.key_dim, config.heads * config.value_dim)
    return [-rng.exponential(1, shape).astype(np.float32)] if config.rates else []


def reference(config: LinearAttention, rows: Rows) -> tuple[Array, Array]:
    """The outputs [T,H*Dv] of one sequence and the states [T,H,Dk,Dv] behind its tokens."""
    heads, dk, dv = config.heads, config.key_dim, config.value_dim
    q, k, v, decay, beta = (x.astype(np.float64) for x in rows)
    q, k = (x.reshape(len(x), -1, dk) for x in (q, k))
    v, decay = v.reshape(len(v), heads, dv), decay.reshape(len(v), heads, -1)
    rates = rates_of(config)[0] if config.rates else None
    factor = beta if config.beta else None
    out, states = oracle.linear_attention(
        q, k, v, decay, factor, config.scale, int(config.delta), rates=rates
    )
    return out.reshape(len(v), -1), states


def block_of(config: LinearAttention) -> int:
    """Tokens of a block: as few as states leave, no fewer than two tiles."""
    return max(BLOCK, config.slots)


def places(config: LinearAttention, block: int) -> slice:
    """The tiles of a block that a state lies in."""
    first = block * block_of(config) // TILE
    return slice(first, first + config.slots // TILE)


def put(pools: tuple[Array, Array], block: int, config: LinearAttention, state: Array) -> None:
    """A state [H,Dk,Dv] into a block."""
    for pool, half in zip(pools, np.split(state, 2, axis=1), strict=True):
        tiles = half.reshape(len(state), config.slots // TILE, -1)
        pool[places(config, block)] = tiles.swapaxes(0, 1)


def taken(pools: tuple[Array, Array], block: int, config: LinearAttention) -> Array:
    """The state of a block."""
    shape = config.heads, config.key_dim // 2, config.value_dim
    halves = [pool[places(config, block)].swapaxes(0, 1).reshape(shape) for pool in pools]
    return np.concatenate(halves, axis=1)


class Step:
    """Sequences of lengths ``before`` to which ``new`` rows are added; blocks of group 1 of two
    are in no order, and none but the last before the step has a state."""

    def __init__(self, config: LinearAttention, before: list[int], new: list[int]) -> None:
        rng = np.random.default_rng(3)
        ends = [b + n for b, n in zip(before, new, strict=True)]
        self.before, self.size = before, block_of(config)
        pages = -(-max(ends) // self.size)
        self.all = [rows_of(config, end, seed) for seed, end in enumerate(ends)]
        self.want = [reference(config, rows) for rows in self.all]
        order = rng.permutation(len(before) * pages).astype(np.int32)
        self.tables = np.full((2, len(before), pages), -1, np.int32)
        self.tables[1] = order.reshape(len(before), pages)
        self.starts = np.cumsum([0, *new]).astype(np.int32)
        self.lengths = np.array([[0] * len(new), ends], np.int32)
        slots = [self.slot(s, t) for s, b in enumerate(before) for t in range(b, ends[s])]
        self.slots = np.array([[-1] * len(slots), slots], np.int32)
        tiles = len(order) * self.size // TILE
        size = config.heads, TILE * config.shape.key_dim
        self.pools = blank(tiles, *size), blank(tiles, *size)
        for s, b in enumerate(before):
            if b:
                state = self.want[s][1][b - 1].astype(np.float32)
                put(self.pools, self.block(s, b - 1), config, state)

    def block(self, sequence: int, token: int) -> int:
        return int(self.tables[1, sequence, token // self.size])

    def slot(self, sequence: int, token: int) -> int:
        return self.block(sequence, token) * self.size + token % self.size

    def run(self, config: LinearAttention, target: str) -> tuple[tuple[Array, Array], Array]:
        """The pools and the outputs."""
        parts = zip(self.all, self.before, strict=True)
        new = [[x[b:] for x in rows] for rows, b in parts]
        rows = [np.concatenate(x) for x in zip(*new, strict=True)]
        if not config.beta:
            rows.pop()
        rows += rates_of(config)
        arrays = [*rows, self.slots, self.starts, self.lengths, self.tables]
        size, out = np.array([self.size], np.int32), blank(*rows[2].shape)
        *_, keys, values, out = run(config, isa_named(target), *arrays, size, *self.pools, out)
        return (keys, values), out

    def kept(self) -> dict[int, Array]:
        """States by block: those that were there, and those that the step's rows leave."""
        found = {}
        for s, b in enumerate(self.before):
            if b:
                found[self.block(s, b - 1)] = self.want[s][1][b - 1]
            slots = self.slots[1, self.starts[s] : self.starts[s + 1]]
            for t, (slot, behind) in enumerate(pairwise([*slots, -1]), b):
                if slot >= 0 and (behind < 0 or t % self.size == self.size - 1):
                    found[self.block(s, t)] = self.want[s][1][t]
        return found

    def check(self, config: LinearAttention, target: str) -> None:
        """Outputs and states are the reference's, and no other part of the pools is written."""
        pools, out = self.run(config, target)
        for s, b in enumerate(self.before):
            found = out[self.starts[s] : self.starts[s + 1]]
            np.testing.assert_allclose(found, self.want[s][0][b:], rtol=1e-4, atol=2e-5)
        states = self.kept()
        for block, want in states.items():
            np.testing.assert_allclose(taken(pools, block, config), want, rtol=1e-4, atol=2e-5)
        for pool in pools:
            assert np.isfinite(pool).all((1, 2)).sum() == len(states) * config.slots // TILE
            assert np.isfinite(pool).any((1, 2)).sum() == len(states) * config.slots // TILE


SMALL = LinearAttention(2, 2, 16, 16, 0.25, True, 1, 2)
RAGGED = LinearAttention(4, 2, 32, 24, 0.2, True, 1, 2)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("delta", [True, False], ids=["delta", "sum"])
@pytest.mark.parametrize(
    ("config", "before", "new"),
    [
        (SMALL, [0], [1]),
        (SMALL, [0, 33, 64, 31, 1], [3, 1, 70, 2, 33]),
        (RAGGED, [31, 32, 0, 70, 5], [1, 1, 32, 27, 0]),
        (replace(RAGGED, heads=2, value_dim=56), [0, 40], [1, 2]),  # a whole part and another
        (LinearAttention(4, 2, 128, 128, 0.1, True, 1, 2), [0, 127], [2, 4]),  # parallel
    ],
)
def test_rows_are_those_of_a_recurrence(
    target: str, delta: bool, config: LinearAttention, before: list[int], new: list[int]
) -> None:
    config = replace(config, delta=delta)
    Step(config, before, new).check(config, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "config",
    [
        replace(SMALL, decays=16),
        replace(RAGGED, decays=32),
        replace(RAGGED, decays=32, delta=False),
        LinearAttention(1, 1, 16, 80, 1.0, False, 1, 2, rates=True, beta=False),
        replace(RAGGED, delta=False, rates=True),
    ],
    ids=["keys", "ragged keys", "keys, sum", "scan", "scan of heads"],
)
def test_keys_and_values_decay_by_themselves(target: str, config: LinearAttention) -> None:
    Step(config, [0, 33, 31, 5], [3, 40, 2, 0]).check(config, target)


@pytest.mark.parametrize(
    "change", [{"decays": 2}, {"rates": True}, {"rates": True, "delta": False, "decays": 16}]
)
def test_other_decays_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="decays of a head with these rules"):
        replace(SMALL, **change)


@pytest.mark.parametrize("drafts", [(1, 3, 1), (2, 1, 2), (0, 33, 3)])
@pytest.mark.parametrize("before", [(31, 0, 40), (30, 5, 29), (3, 31, 0)])
def test_rows_without_a_slot_leave_the_state_before_them(
    before: tuple[int, ...], drafts: tuple[int, ...]
) -> None:
    step = Step(RAGGED, list(before), [2, 33, 3])
    for end, count in zip(step.starts[1:], drafts, strict=True):
        step.slots[1, end - count : end] = -1
    step.check(RAGGED, TARGETS[1])


def test_a_block_that_is_only_read_stays() -> None:
    step = Step(SMALL, [32, 32], [1, 5])
    step.tables[1, 1, 0] = step.tables[1, 0, 0]  # a prefix of both
    step.all[1] = tuple(  # type: ignore[assignment]
        np.concatenate([a[:32], b[32:]]) for a, b in zip(*step.all, strict=True)
    )
    step.want[1] = reference(SMALL, step.all[1])
    for pool in step.pools:
        others = np.arange(len(pool)) != step.tables[1, 0, 0] * TILES
        pool[others] = np.nan
    pools, _ = step.run(SMALL, TARGETS[1])
    shared = step.block(0, 31)
    np.testing.assert_array_equal(taken(pools, shared, SMALL), taken(step.pools, shared, SMALL))
    step.check(SMALL, TARGETS[1])


def test_rows_behind_all_sequences_are_zero() -> None:
    step = Step(SMALL, [0, 3], [2, 2])
    step.starts[2], step.lengths[1, 1] = 2, 3
    _, out = step.run(SMALL, TARGETS[1])
    np.testing.assert_allclose(out[:2], step.want[0][0], rtol=1e-4, atol=2e-5)
    assert not out[2:].any()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("delta", [True, False], ids=["delta", "sum"])
def test_a_row_has_the_same_bits_in_any_step(target: str, delta: bool) -> None:
    config = LinearAttention(4, 2, 32, 24, 0.2, delta)
    rows, isa = rows_of(config, 48, 0), isa_named(target)
    pools = blank(4, 4, 384), blank(4, 4, 384)
    tables, size, found = np.array([[[1, 0]]], np.int32), np.array([BLOCK], np.int32), []
    slots = np.array([[(1 - t // BLOCK) * BLOCK + t % BLOCK for t in range(48)]], np.int32)
    for bounds in ([0, 48], range(49), [0, 7, 39, 48]):
        outs = []
        for start, end in pairwise(bounds):
            starts, lengths = np.array([0, end - start], np.int32), np.array([[end]], np.int32)
            now = *(x[start:end] for x in rows), slots[:, start:end], starts, lengths, tables, size
            *_, keys, values, out = run(config, isa, *now, *pools, blank(end - start, 96))
            pools = keys, values
            outs.append(out)
        found.append((np.concatenate(outs), *(pool[::TILES] for pool in pools)))
    for other in found[1:]:
        for one, again in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, again)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ((3, 2, 16, 16), "3 heads are no multiple of 2 key heads"),
        ((2, 2, 24, 24), "takes no states of 24 x 24"),
        ((2, 2, 1, 256), "takes no states of 1 x 256"),
    ],
)
def test_sizes_without_a_kernel_are_refused(sizes: tuple[int, int, int, int], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        LinearAttention(*sizes, 1.0, True)
