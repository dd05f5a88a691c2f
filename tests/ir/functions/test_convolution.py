"""Convolutions along the tokens, dense and over pools, against float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.ir.test_packed_rows import Array, evaluate
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


@pytest.mark.parametrize("kernel", [2, 3])
def test_rows_before_the_step_come_from_pools(kernel: int) -> None:
    rng, block = np.random.default_rng(1), 2
    before, new = [0, 1, 4], [2, 1, 2]
    whole = [drawn(rng, b + n, CHANNELS) for b, n in zip(before, new, strict=True)]
    weight, bias = drawn(rng, CHANNELS, kernel), drawn(rng, CHANNELS)
    tables = np.full((2, 3, 3), -1, np.int32)
    tables[1] = [[4, -1, -1], [6, -1, -1], [-1, 5, 3]]  # the last one's first block is released
    starts = np.cumsum([0, *new]).astype(np.int32)
    pools = [np.full((7, 1, block, CHANNELS // 2), np.nan, np.float32) for _ in range(2)]
    for s, b in enumerate(before):
        for t in range(max(0, b - kernel + 1), b):
            for pool, half in zip(pools, np.split(whole[s][t], 2), strict=True):
                pool[tables[1, s, t // block], 0, t % block] = half
    slots = [
        tables[1, s, t // block] * block + t % block
        for s, b in enumerate(before)
        for t in range(b, b + new[s])
    ]
    padding = drawn(rng, 1, CHANNELS)  # a row of no sequence
    x = np.concatenate([*(w[b:] for w, b in zip(whole, before, strict=True)), padding])
    found = evaluate(
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
        want = oracle.causal_conv(whole[s], weight, bias)[before[s] :]
        np.testing.assert_allclose(found[start:end], want, atol=1e-5)
