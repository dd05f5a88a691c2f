"""Convolutions along sequences of ragged steps against float64, rows before them in the pools."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from optc.backends.tvm.kernels.kv.causal_conv import CausalConv
from optc.backends.tvm.kv_layout import TILE
from tests.backends.tvm.kernel_cases import TARGETS, Array, blank, isa_named, run
from tests.support import oracle

BLOCK = 32


def put(pools: tuple[Array, Array], slot: int, row: Array) -> None:
    """A row into a slot of the pools: half of its channels each."""
    tile, offset, half = slot // TILE, slot % TILE, len(row) // 2
    pools[0][tile, 0].reshape(half, TILE)[:, offset] = row[:half]
    pools[1][tile, 0].reshape(TILE, half)[offset] = row[half:]


def taken(pools: tuple[Array, Array], slot: int) -> Array:
    """The row of a slot."""
    tile, offset = slot // TILE, slot % TILE
    keys, values = (pool[tile, 0] for pool in pools)
    half = len(keys) // TILE
    rows = keys.reshape(half, TILE)[:, offset], values.reshape(TILE, half)[offset]
    return np.concatenate(rows)


class Step:
    """Sequences of lengths ``before`` to which ``new`` rows are added; blocks of group 1 of two
    are in no order, those behind the window are released."""

    def __init__(self, config: CausalConv, before: list[int], new: list[int], skip: bool) -> None:
        rng = np.random.default_rng(3)
        self.all = [
            rng.standard_normal((b + n, config.channels)).astype(np.float32)
            for b, n in zip(before, new, strict=True)
        ]
        self.before, pages = before, -(-max(map(len, self.all)) // BLOCK)
        order = rng.permutation(len(before) * pages).astype(np.int32)
        self.tables = np.full((2, len(before), pages), -1, np.int32)
        self.tables[1] = order.reshape(len(before), pages)
        for table, count in zip(self.tables[1], before, strict=True):
            table[: max(0, count - config.kernel + 1) // BLOCK] = -1
        self.starts = np.cumsum([0, *new]).astype(np.int32)
        self.lengths = np.array([[0] * len(new), [len(x) for x in self.all]], np.int32)
        slots = [self.slot(s, t) for s, b in enumerate(before) for t in range(b, b + new[s])]
        self.slots = np.array([[-1] * len(slots), slots], np.int32)
        if skip:
            self.slots[1, -1] = -1
        half, tiles = config.channels // 2, len(order) * BLOCK // TILE
        self.pools = blank(tiles, 1, half * TILE), blank(tiles, 1, half * TILE)
        for s, b in enumerate(before):
            for t in range(max(0, b - config.kernel + 1), b):
                put(self.pools, self.slot(s, t), self.all[s][t])

    def slot(self, sequence: int, token: int) -> int:
        return int(self.tables[1, sequence, token // BLOCK]) * BLOCK + token % BLOCK

    @property
    def x(self) -> Array:
        return np.concatenate([x[b:] for x, b in zip(self.all, self.before, strict=True)])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("config", "before", "new"),
    [
        (CausalConv(16, 3, group=1, groups=2), [0], [1]),
        (CausalConv(48, 3, True, 1, 2), [0, 33, 64, 2, 1], [3, 1, 40, 2, 1]),
        (CausalConv(80, 4, group=1, groups=2), [31, 32, 0, 1, 70], [1, 1, 5, 1, 1]),
        (CausalConv(64, 2, True, 1, 2), [1, 95], [300, 1]),  # parallel
    ],
)
def test_rows_are_those_of_a_convolution(
    target: str, config: CausalConv, before: list[int], new: list[int]
) -> None:
    step = Step(config, before, new, skip=len(new) > 1)
    weight = np.random.default_rng(5).standard_normal((config.channels, config.kernel))
    weight = weight.astype(np.float32)
    bias = [np.linspace(-1, 1, config.channels, dtype=np.float32)] if config.bias else []
    x, size = step.x, np.array([BLOCK], np.int32)
    arrays = [x, np.ascontiguousarray(weight.T), *bias, step.slots, step.starts, step.lengths]
    out = blank(*x.shape)
    found = run(config, isa_named(target), *arrays, step.tables, size, *step.pools, out)
    for s, (start, end) in enumerate(pairwise(step.starts)):
        want = oracle.causal_conv(step.all[s], weight, *bias)[before[s] :]
        np.testing.assert_allclose(found[-1][start:end], want, rtol=1e-5, atol=1e-5)
    pools = found[-3], found[-2]
    for slot, row in zip(step.slots[1], x, strict=True):
        if slot >= 0:
            np.testing.assert_array_equal(taken(pools, slot), row)
    written = sum(np.isfinite(pool).sum() for pool in pools)
    kept = sum(np.isfinite(pool).sum() for pool in step.pools)
    assert written == kept + (step.slots[1] >= 0).sum() * config.channels


@pytest.mark.parametrize("target", TARGETS)
def test_a_row_has_the_same_bits_in_any_step(target: str) -> None:
    config, isa = CausalConv(32, 4), isa_named(target)
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal((n, 32)).astype(np.float32) for n in (40, 4))
    pools = blank(4, 1, 16 * TILE), blank(4, 1, 16 * TILE)
    tables, size, whole = np.array([[[1, 0]]], np.int32), np.array([BLOCK], np.int32), []
    slots = np.array([[(1 - t // BLOCK) * BLOCK + t % BLOCK for t in range(40)]], np.int32)
    for start, end in ((0, 40), *((t, t + 1) for t in range(40))):
        starts = np.array([0, end - start], np.int32)
        lengths = np.array([[end]], np.int32)
        out = blank(end - start, 32)
        now = x[start:end], weight, slots[:, start:end], starts, lengths, tables, size
        *_, keys, values, out = run(config, isa, *now, *pools, out)
        pools = keys, values
        whole.append(out)
    np.testing.assert_array_equal(whole[0], np.concatenate(whole[1:]))
