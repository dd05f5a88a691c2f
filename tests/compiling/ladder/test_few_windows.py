"""A rung on few windows: which are taken, and what is beyond hope."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from optc import registry
from optc.compiling.ladder.few_windows import FEW, lost_on_few, measure_few
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.text import EvalWindows
from tests.support.dense_models import V, dense_model
from tests.support.recomputing_engine import RecomputingEngine


def windows(count: int) -> EvalWindows:
    ids = np.random.default_rng(count).integers(0, V, (count, 9), np.int32)
    return EvalWindows(ids, "a text", "windows")


@pytest.mark.parametrize(
    ("gate", "bound", "near", "far"),
    [
        ("kl_mean", 0.01, 0.014, 0.016),
        ("kl_p99", 0.1, 0.14, 0.16),
        ("top1_agreement", 0.9, 0.86, 0.84),
        ("perplexity_ratio", 1.1, 1.14, 1.16),
        ("perplexity_ratio", 0.9, 0.94, 0.96),
        ("top1_agreement", 1.0, 1.0, 0.99),
    ],
)
def test_only_what_is_far_from_its_bound_is_lost(
    gate: str, bound: float, near: float, far: float
) -> None:
    assert lost_on_few({gate: near}, {gate: bound}) == ()
    assert lost_on_few({gate: far, "kl_max": 9.0}, {gate: bound}) == (gate,)


def test_gates_of_the_text_and_of_speed_are_not_judged_by_few_windows() -> None:
    values = {"perplexity": 100.0, "decode_speedup": 0.1, "common_continuation": 1.0}
    assert lost_on_few(values, {**dict.fromkeys(values, 2.0), "kl_mean": 0.1}) == ()


class Backend:
    """Loads an engine that computes the model as it is."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.loaded: list[Path] = []

    def can_load(self, entry: object, machine: object) -> str:
        return self.reason

    def load(self, folder: Path, spec: object, data: object, threads: int) -> Any:
        self.loaded.append(folder)
        return RecomputingEngine(dense_model(2))


def measured(monkeypatch: pytest.MonkeyPatch, backend: Backend, count: int) -> dict[str, float]:
    monkeypatch.setattr(registry, "backend", lambda name: backend)
    entry = SimpleNamespace(backend="b", folder="engines/target", spec=None, data=None)
    reference = BlockwiseReference(dense_model(2), 1)
    runs: list[int] = []
    run = reference.run

    def counted(tokens: Any, *rest: Any, **more: Any) -> Any:
        runs.append(len(tokens))
        return run(tokens, *rest, **more)

    monkeypatch.setattr(reference, "run", counted)
    found = measure_few(cast(Any, entry), Path("a"), reference, windows(count))
    assert sum(runs) in (0, FEW), "the reference runs over no other windows"
    return found


def test_an_exact_engine_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend()
    found = measured(monkeypatch, backend, FEW + 3)
    assert found["kl_mean"] < 1e-6
    assert found["top1_agreement"] == 1.0
    assert backend.loaded == [Path("a/engines/target")]


def test_an_engine_that_does_not_run_here_is_left_to_the_gates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert measured(monkeypatch, Backend("no GPU"), FEW + 3) == {}


def test_few_windows_are_all_windows_of_a_large_model(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend()
    assert measured(monkeypatch, backend, FEW) == {}
    assert backend.loaded == []
