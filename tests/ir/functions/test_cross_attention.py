"""Attention to the states of an encoder, in float64 one sequence after the other."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ir.test_packed_rows import Array, evaluate, softmax

HEADS, SIZE, VALUE, SCALE = 4, 8, 6, 0.4


def attended(q: Array, keys: Array, values: Array, kv_heads: int) -> Array:
    """q [n, H*Dk] over keys [P, Hkv*Dk] and values [P, Hkv*Dv] -> [n, H*Dv]."""
    wide = [a.astype(np.float64).reshape(len(a), -1, d) for a, d in ((keys, SIZE), (values, VALUE))]
    k, v = (np.repeat(a, HEADS // kv_heads, axis=1) for a in wide)
    scores = np.einsum("nhd,phd->hnp", q.astype(np.float64).reshape(len(q), HEADS, SIZE), k)
    return np.einsum("hnp,phd->nhd", softmax(SCALE * scores), v).reshape(len(q), -1)


def drawn(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_dense(kv_heads: int) -> None:
    rng = np.random.default_rng(0)
    q, k = drawn(rng, 2, 5, HEADS * SIZE), drawn(rng, 2, 9, kv_heads * SIZE)
    v = drawn(rng, 2, 9, kv_heads * VALUE)
    attributes = {"num_heads": HEADS, "kv_num_heads": kv_heads, "scale": SCALE}
    found = evaluate("CrossAttention", {"q": q, "k": k, "v": v}, attributes)
    for b in range(2):
        np.testing.assert_allclose(found[b], attended(q[b], k[b], v[b], kv_heads), atol=1e-5)


@pytest.mark.parametrize(
    ("kv_heads", "dtype", "most"), [(4, "float32", 1e-5), (2, "bfloat16", 0.03)]
)
def test_rows_see_all_states_of_their_sequence(kv_heads: int, dtype: str, most: float) -> None:
    rng, block = np.random.default_rng(1), 4
    rows, states = [1, 5, 2], [7, 3, 8]
    starts = np.cumsum([0, *rows]).astype(np.int32)
    q = drawn(rng, starts[-1], HEADS * SIZE)
    pools = [drawn(rng, 6, kv_heads, block, size) for size in (SIZE, VALUE)]
    tables = np.full((2, 3, 3), -1, np.int32)
    tables[1] = [[4, 0, -1], [2, -1, -1], [5, 3, -1]]
    lengths = np.array([[9, 9, 9], states], np.int32)
    found = evaluate(
        "PagedCrossAttention",
        {
            "q": q,
            "k_pool": pools[0],
            "v_pool": pools[1],
            "query_starts": starts,
            "kv_lengths": lengths,
            "block_tables": tables,
        },
        {
            "num_heads": HEADS,
            "kv_num_heads": kv_heads,
            "scale": SCALE,
            "group": 1,
            "layer": 3,
            "kv_dtype": dtype,
        },
    )
    for b, count in enumerate(states):
        blocks = tables[1, b, : -(-count // block)]
        k, v = (
            pool[blocks].transpose(0, 2, 1, 3).reshape(len(blocks) * block, -1)[:count]
            for pool in pools
        )
        own = slice(starts[b], starts[b + 1])
        np.testing.assert_allclose(found[own], attended(q[own], k, v, kv_heads), atol=most)
