"""Windows in an order by chance: a trial of some is the beginning of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optc.proof.gates.compare import compare_windows, trial
from optc.proof.reference import blockwise
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.text import EvalWindows
from tests.support.dense_models import V, dense_model
from tests.support.recomputing_engine import RecomputingEngine


def test_a_trial_is_no_waste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockwise, "BLOCK_ROWS", 9)
    runs: list[int] = []
    run = BlockwiseReference.run

    def counted(self: BlockwiseReference, tokens: np.ndarray, **more: Any) -> np.ndarray:
        runs.append(len(tokens))
        return run(self, tokens, **more)

    monkeypatch.setattr(BlockwiseReference, "run", counted)
    ids = np.random.default_rng(3).integers(0, V, (8, 10), np.int32)
    windows, model = EvalWindows(ids, "a text", "eight windows"), dense_model(1)
    engine = RecomputingEngine(model, disturb=lambda logits: 1.1 * logits)
    reference = BlockwiseReference(model, 1)
    few = compare_windows(reference, engine, trial(windows, 3))
    assert sum(runs) == 3
    whole = compare_windows(reference, engine, windows)
    assert sum(runs) == 8, "no window ran twice"
    assert (few.of, whole.of) == (3, 8)
    mine = sorted(float(one.kl.mean()) for one in few.windows)
    assert mine == sorted(float(one.kl.mean()) for one in whole.windows[:3])
    kl = [float(one.kl.mean()) for one in whole.windows]
    assert whole.divergence.kl_mean == pytest.approx(np.mean(kl))
    assert trial(windows, 3).convention.startswith("3 windows, drawn by chance, of these: eight")
