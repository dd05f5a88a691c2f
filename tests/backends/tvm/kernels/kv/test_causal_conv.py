"""Convolutions along sequences of ragged steps against float64, the rows before them in pools."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from optc.backends.tvm.kernels.kv.causal_conv import CausalConv
from optc.backends.tvm.kv_layout import TILE
from optc.runtime.executable.recurrent_state import row_stride, rows_width
from tests.backends.tvm.kernel_cases import TARGETS, Array, blank, isa_named, run
from tests.support import oracle

BLOCK = 32


def conv(channels: int, kernel: int, bias: bool = False) -> CausalConv:
    """In the second of two groups, its rows over all slots of a block but few."""
    return CausalConv(channels, kernel, rows_width(channels, kernel, 16), bias, 1, 2)


def places(config: CausalConv, block: int) -> slice:
    """The tiles of a block."""
    return slice(block * BLOCK // TILE, (block + 1) * BLOCK // TILE)


def put(pools: tuple[Array, Array], block: int, config: CausalConv, rows: Array) -> None:
    """The last rows of a sequence, zeros before its first, into a block: half of the channels
    each."""
    count, stride = config.kernel - 1, row_stride(config.channels)
    state = np.zeros((count, config.channels), np.float32)
    state[count - len(rows[-count:]) :] = rows[-count:]
    for pool, half in zip(pools, np.split(state, 2, axis=1), strict=True):
        numbers = pool[places(config, block)].reshape(-1)  # a copy
        for row, values in enumerate(half):
            numbers[row * stride : row * stride + len(values)] = values
        pool[places(config, block)] = numbers.reshape(pool[places(config, block)].shape)


class Step:
    """Sequences of lengths ``before`` to which ``new`` rows are added, the last ``drafts`` of them
    without slots; blocks of group 1 of two are in no order, and none but the last before the step
    has a state."""

    def __init__(
        self, config: CausalConv, before: list[int], new: list[int], drafts: list[int]
    ) -> None:
        rng = np.random.default_rng(3)
        self.all = [
            rng.standard_normal((b + n, config.channels)).astype(np.float32)
            for b, n in zip(before, new, strict=True)
        ]
        self.before, pages = before, -(-max(map(len, self.all)) // BLOCK)
        order = rng.permutation(len(before) * pages).astype(np.int32)
        self.tables = np.full((2, len(before), pages), -1, np.int32)
        self.tables[1] = order.reshape(len(before), pages)
        self.starts = np.cumsum([0, *new]).astype(np.int32)
        self.lengths = np.array([[0] * len(new), [len(x) for x in self.all]], np.int32)
        slots = [self.slot(s, t) for s, b in enumerate(before) for t in range(b, b + new[s])]
        self.slots = np.array([[-1] * len(slots), slots], np.int32)
        for end, count in zip(self.starts[1:], drafts, strict=True):
            self.slots[1, end - count : end] = -1
        size = len(order) * BLOCK // TILE, 1, config.width * TILE
        self.pools, self.want = (blank(*size), blank(*size)), (blank(*size), blank(*size))
        for s, b in enumerate(before):
            if b:
                put(self.pools, self.tables[1, s, (b - 1) // BLOCK], config, self.all[s][:b])
            ends = range(b, len(self.all[s]) - drafts[s] + 1)
            for end in ends:  # each block has the last state
                if end:
                    put(self.want, self.tables[1, s, (end - 1) // BLOCK], config, self.all[s][:end])

    def slot(self, sequence: int, token: int) -> int:
        return int(self.tables[1, sequence, token // BLOCK]) * BLOCK + token % BLOCK

    @property
    def x(self) -> Array:
        return np.concatenate([x[b:] for x, b in zip(self.all, self.before, strict=True)])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("config", "before", "new"),
    [
        (conv(16, 3), [0], [1]),
        (conv(48, 3, True), [0, 33, 64, 2, 1], [3, 1, 40, 2, 1]),
        (conv(80, 4), [31, 32, 0, 1, 70], [1, 1, 5, 1, 1]),
        (conv(300, 4, True), [31, 30, 0], [3, 2, 33]),  # a whole part and another
        (conv(64, 2, True), [1, 95], [300, 1]),  # parallel
        (conv(6, 4), [2, 0], [1, 2]),
    ],
)
@pytest.mark.parametrize("drafted", [False, True], ids=["known", "drafts"])
def test_rows_are_those_of_a_convolution(
    target: str, config: CausalConv, before: list[int], new: list[int], drafted: bool
) -> None:
    step = Step(config, before, new, [(n + 1) // 2 if drafted else 0 for n in new])
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
    for pool, want in zip(found[-3:-1], step.want, strict=True):
        np.testing.assert_array_equal(pool, want)


@pytest.mark.parametrize("target", TARGETS)
def test_a_row_has_the_same_bits_in_any_step(target: str) -> None:
    config, isa = CausalConv(32, 4, rows_width(32, 4, 32)), isa_named(target)
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal((n, 32)).astype(np.float32) for n in (40, 4))
    size_of_pool = 4, 1, config.width * TILE
    pools = blank(*size_of_pool), blank(*size_of_pool)
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
