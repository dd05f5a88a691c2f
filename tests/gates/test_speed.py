"""The baseline computes what the dense form computes; timings only have to exist."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

from optc.gates import speed
from optc.gates.speed import PartRun, measure_speed
from optc.reference import baseline as baseline_module
from optc.reference.baseline import Baseline
from tests.reference.test_blockwise import whole_logits
from tests.support.dense_models import V, dense_model
from tests.support.recomputing_engine import RecomputingEngine


@pytest.mark.parametrize("options", [{}, {"window": 4, "softcap": 2.0}, {"bias": True}], ids=str)
def test_cached_baseline_equals_the_dense_form(options) -> None:
    model = dense_model(2, **options)
    tokens = np.random.default_rng(3).integers(0, V, 14, np.int32)
    expected = whole_logits(model, tokens[None])[0]
    (logits,) = cached_logits(Baseline(model, 1, whole=True), tokens)
    np.testing.assert_allclose(logits, expected[[8, 9, 13]], atol=2e-5)


def cached_logits(baseline: Baseline, tokens: np.ndarray) -> list[np.ndarray]:
    """Logits after 9, 10 and 14 tokens, fed as 9 + 1 + 4."""
    found = []
    for part in baseline.open_parts(tokens):
        run = PartRun(part, 4)
        logits = []
        past = None
        for start, stop in ((0, 9), (9, 10), (10, 14)):
            feeds = {n: np.ascontiguousarray(a[:, start:stop]) for n, a in part.feeds.items()}
            value, past = run.prefill(feeds) if past is None else run.run(feeds, past)
            logits.append(value.numpy()[0, -1].copy())
        found.append(np.stack(logits))
    return found


def test_pieces_compute_the_same_as_the_whole(monkeypatch) -> None:
    monkeypatch.setattr(baseline_module, "HEAD_TILE", 40)
    model = dense_model(3)
    baseline = Baseline(model, 1, whole=False)
    tokens = np.arange(6, dtype=np.int32)
    shapes = []
    for part in baseline.open_parts(tokens):
        run = PartRun(part, 3)
        result, past = run.prefill(part.feeds)
        shapes.append((result.shape(), len(past)))
        assert isinstance(part.session, ort.InferenceSession)
    assert baseline.pieces == len(shapes) == 6
    assert shapes[:3] == [([1, 6, 48], 2)] * 3
    assert shapes[3:] == [([1, 1, n], 0) for n in (40, 40, 17)]


@pytest.mark.parametrize("whole", [True, False])
def test_measures_both_in_turns(whole: bool, monkeypatch) -> None:
    monkeypatch.setattr(speed, "RESERVED_BYTES", 0)
    model = dense_model(2)
    engine = RecomputingEngine(model)
    found = measure_speed(
        model,
        engine,
        np.arange(30, dtype=np.int32),
        threads=1,
        max_ram_bytes=10**9 if whole else 1000,
    )
    assert (found.prefill_tokens, found.decode_context, found.decode_tokens) == (64, 32, 16)
    assert found.prefill_speedup == pytest.approx(
        found.prefill_tokens_per_s / found.baseline_prefill_tokens_per_s
    )
    assert found.decode_speedup == pytest.approx(
        found.decode_tokens_per_s / found.baseline_decode_tokens_per_s
    )
    assert found.baseline.endswith("whole" if whole else "in 3 pieces, their times added up")
    rounds = 1 + speed.ROUNDS
    assert engine.steps == ([16] * 4 + [16] * 2 + [1] * 16) * rounds
