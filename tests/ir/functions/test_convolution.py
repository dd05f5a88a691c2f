"""Convolutions along the tokens, dense and over pools, against float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from optc.runtime.executable.recurrent_state import row_stride, rows_width
from tests.ir.test_packed_rows import Array, evaluate, evaluate_all
from tests.support import oracle

CHANNELS = 6


def drawn(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kernel", [2, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_dense(kernel: int, bias: bool) -> None:
    rng = np.random.default_rng(0)
    x, weight = drawn(rng, 2, 5, CHANNELS), drawn(rng, CHANNELS, kernel)
    given = {"x": x, "weight": weight, **({"bias": drawn(rng, CHANNELS)} if bias else {})}
    found = evaluate("CausalConv", given, {"channels": CHANNELS, "kernel": kernel})
    for rows, result in zip(x, found, strict=True):
        np.testing.assert_allclose(
            result, oracle.causal_conv(rows, weight, given.get("bias")), atol=1e-5
        )


def put(pools: list[Array], block: int, kernel: int, rows: Array) -> None:
    """The last rows of a sequence, zeros before its first, into a block."""
    state = np.zeros((kernel - 1, CHANNELS), np.float32)
    state[kernel - 1 - len(rows[1 - kernel :]) :] = rows[1 - kernel :]
    padding = [(0, 0), (0, row_stride(CHANNELS) - CHANNELS // 2)]
    for pool, half in zip(pools, np.split(state, 2, axis=1), strict=True):
        numbers = np.pad(half, padding).ravel()
        pool[block].reshape(-1)[: len(numbers)] = numbers


@pytest.mark.parametrize("drafts", [(0, 0, 0), (1, 1, 2)])
@pytest.mark.parametrize("kernel", [2, 4])
def test_rows_before_the_step_are_states_of_blocks(kernel: int, drafts: tuple[int, ...]) -> None:
    rng, block = np.random.default_rng(1), 16
    before, new = [0, 1, 15], [2, 1, 19]
    whole = [drawn(rng, b + n, CHANNELS) for b, n in zip(before, new, strict=True)]
    weight, bias = drawn(rng, CHANNELS, kernel), drawn(rng, CHANNELS)
    tables = np.full((2, 3, 3), -1, np.int32)
    tables[1] = [[4, -1, -1], [6, -1, -1], [1, 5, 3]]
    starts = np.cumsum([0, *new]).astype(np.int32)
    shape = 7, 1, block, rows_width(CHANNELS, kernel, block)
    pools, want = ([np.full(shape, np.nan, np.float32) for _ in range(2)] for _ in range(2))
    for s, b in enumerate(before):
        if b:
            put(pools, tables[1, s, (b - 1) // block], kernel, whole[s][:b])
        for end in range(max(1, b), len(whole[s]) - drafts[s] + 1):
            put(want, tables[1, s, (end - 1) // block], kernel, whole[s][:end])
    slots = [
        tables[1, s, t // block] * block + t % block if t < len(whole[s]) - drafts[s] else -1
        for s, b in enumerate(before)
        for t in range(b, b + new[s])
    ]
    padding = drawn(rng, 1, CHANNELS)  # a row of no sequence
    x = np.concatenate([*(w[b:] for w, b in zip(whole, before, strict=True)), padding])
    out, *after = evaluate_all(
        "PagedCausalConv",
        {
            "x": x,
            "weight": weight,
            "bias": bias,
            "k_pool": pools[0],
            "v_pool": pools[1],
            "slot_mapping": np.array([[-1] * len(x), [*slots, -1]], np.int32),
            "query_starts": starts,
            "kv_lengths": np.array([[0] * 3, [len(w) for w in whole]], np.int32),
            "block_tables": tables,
        },
        {"channels": CHANNELS, "kernel": kernel, "group": 1, "layer": 0},
    )
    for s, (start, end) in enumerate(pairwise(starts)):
        rows = oracle.causal_conv(whole[s], weight, bias)[before[s] :]
        np.testing.assert_allclose(out[start:end], rows, atol=1e-5)
    for pool, rows in zip(after, want, strict=True):
        known = np.isfinite(rows)
        np.testing.assert_array_equal(pool[known], rows[known])
