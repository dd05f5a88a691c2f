"""The body of attention over slots against dense attention of each sequence by itself."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ir.test_functions import call
from tests.support import oracle
from tests.support.ir_text import Array, f32

HEADS, KV_HEADS, KEY_DIM, VALUE_DIM, CAPACITY = 4, 2, 4, 6, 16


@pytest.mark.parametrize("softcap", [0.0, 1.5])
@pytest.mark.parametrize("window", [0, 1, 5])
@pytest.mark.parametrize(("before", "rows"), [((9, 0, 3), 1), ((4, 13), 3), ((0,), 16)])
def test_slot_attention(before: tuple[int, ...], rows: int, window: int, softcap: float) -> None:
    check(before, rows, window, softcap)


@pytest.mark.parametrize(("sunk", "leaning", "chunk"), [(1, 0, 0), (0, 1, 0), (0, 0, 4), (1, 1, 4)])
def test_sinks_slopes_and_chunks(sunk: int, leaning: int, chunk: int) -> None:
    check(
        *((4, 13), 3, 0, 0.0),
        chunk=chunk,
        sinks=f32(HEADS) if sunk else None,
        slopes=np.abs(f32(HEADS, seed=1)) if leaning else None,
    )


def check(
    before: tuple[int, ...],
    rows: int,
    window: int,
    softcap: float,
    *,
    chunk: int = 0,
    sinks: Array | None = None,
    slopes: Array | None = None,
) -> None:
    batch = len(before)
    q = f32(batch, rows, HEADS * KEY_DIM)
    k, v = f32(batch, rows, KV_HEADS * KEY_DIM), f32(batch, rows, KV_HEADS * VALUE_DIM)
    pasts = [f32(batch, KV_HEADS, CAPACITY, dim, seed=1) for dim in (KEY_DIM, VALUE_DIM)]
    out, *presents = call(
        "SlotAttention",
        [q, k, v, *pasts, np.array(before), sinks, slopes],
        num_heads=HEADS,
        kv_num_heads=KV_HEADS,
        scale=0.4,
        softcap=softcap,
        window=window,
        chunk=chunk,
    )
    by_head = {"sinks": sinks, "slopes": slopes}
    for b, start in enumerate(before):
        seen = []
        for past, present, new in zip(pasts, presents, (k, v), strict=True):
            want = past[b].copy()
            want[:, start : start + rows] = new[b].reshape(rows, KV_HEADS, -1).transpose(1, 0, 2)
            np.testing.assert_array_equal(present[b], want)
            seen.append(want.transpose(1, 0, 2).reshape(CAPACITY, -1)[: start + rows])
        shape = (HEADS, KV_HEADS, 0.4, softcap, window)
        want_out = oracle.attention(q[b], *seen, *shape, chunk=chunk, **by_head)
        np.testing.assert_allclose(out[b], want_out, rtol=2e-5, atol=1e-5)
