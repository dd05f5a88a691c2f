"""KL from tiles of logits, against the plain formula."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from optc.proof.reference.variants import streaming_kl
from optc.proof.reference.variants.streaming_kl import StreamingKL


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


@pytest.mark.parametrize(("threads", "elements"), [(0, 1 << 15), (0, 20), (3, 20)])
def test_tiles_give_the_plain_formula(
    threads: int, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows are taken at a time, on whatever threads."""
    monkeypatch.setattr(streaming_kl, "_CHUNK_ELEMENTS", elements)
    pool = ThreadPoolExecutor(threads) if threads else None
    random = np.random.default_rng(0)
    z = random.normal(0, 4, (5, 37)).astype(np.float32)
    others = [(z + random.normal(0, s, z.shape)).astype(np.float32) for s in (0.3, 1.0)]
    sums = StreamingKL(5, 2, pool)
    for start, stop in ((0, 9), (9, 10), (10, 37)):
        for rows in (slice(0, 2), slice(2, 5)):
            sums.add(rows, z[rows, start:stop], (y[rows, start:stop] for y in others))
    p, *qs = (log_softmax(one.astype(np.float64)) for one in (z, *others))
    wanted = [(np.exp(p) * (p - q)).sum(axis=1).mean() for q in qs]
    np.testing.assert_allclose(sums.means(), wanted, rtol=1e-12)


def test_large_logits_do_not_overflow() -> None:
    z = np.array([[1000.0, 0.0], [-1000.0, -1001.0]], np.float32)
    sums = StreamingKL(2, 1)
    for start in (0, 1):
        sums.add(slice(0, 2), z[:, start : start + 1], [z[:, start : start + 1]])
    assert sums.means().tolist() == [0.0]
