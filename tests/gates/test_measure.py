"""Gates through an engine: exact engines pass, disturbed ones are caught."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from optc.gates.measure import evaluate, judge, measure_gates
from optc.reference.text import EvalWindows
from tests.gates.test_divergence import log_softmax
from tests.reference.test_blockwise import whole_logits
from tests.support.dense_models import V, dense_model
from tests.support.recomputing_engine import RecomputingEngine

BOUNDS = {"kl_mean": 1e-6, "top1_agreement": 0.99, "perplexity_ratio": 1.001, "kl_p99": None}


@pytest.fixture
def windows() -> EvalWindows:
    ids = np.random.default_rng(7).integers(0, V, (4, 24), np.int32)
    return EvalWindows(ids, "a text", "four windows")


def test_an_exact_engine_passes(windows: EvalWindows) -> None:
    model = dense_model(2, window=4)
    stages: list[str] = []
    report = measure_gates(
        model,
        RecomputingEngine(model),
        windows,
        BOUNDS,
        threads=1,
        progress=lambda stage, done, total: stages.append(f"{stage} {done}/{total}"),
    )
    assert report.failed == report.unmeasured == ()
    by_name = {gate.name: gate for gate in report.gates}
    assert [g.passed for g in report.gates] == [True, None, True, None, True, None, None]
    assert by_name["kl_mean"].value < 1e-9
    assert by_name["top1_agreement"].value == 1
    assert by_name["prefill_speedup"].value > 0
    assert report.figures["tokens"] == 4 * 23
    assert report.figures["text"] == "a text"
    assert report.figures["convention"] == "four windows"
    assert stages[:2] == ["float32 reference 1/2", "float32 reference 2/2"]
    assert {s.split(" ")[0] for s in stages} == {"float32", "divergence", "speed"}
    assert dataclasses.asdict(report.gates[0]) == {
        "name": "kl_mean",
        "value": by_name["kl_mean"].value,
        "bound": 1e-6,
        "passed": True,
        "measured_on": "engine",
        "reason": "",
        "engine": "target",
    }


def test_a_disturbed_engine_fails_with_the_oracle_figures(windows: EvalWindows) -> None:
    model = dense_model(2)
    engine = RecomputingEngine(model, disturb=lambda logits: 1.3 * logits)
    report = measure_gates(model, engine, windows, BOUNDS, threads=1, speed=False)
    p = log_softmax(whole_logits(model, windows.ids[:, :-1]).reshape(-1, V))
    q = log_softmax(1.3 * whole_logits(model, windows.ids[:, :-1]).reshape(-1, V))
    kl = (np.exp(p) * (p - q)).sum(axis=1)
    found = {gate.name: gate for gate in report.gates}
    assert found["kl_mean"].value == pytest.approx(kl.mean(), rel=1e-4)
    assert found["kl_p99"].value == pytest.approx(np.percentile(kl, 99), rel=1e-4)
    nll = -q[np.arange(len(q)), windows.ids[:, 1:].ravel()]
    assert found["perplexity"].value == pytest.approx(np.exp(nll.mean()), rel=1e-4)
    assert [gate.name for gate in report.failed] == ["kl_mean", "perplexity_ratio"]
    assert "is above the bound 1e-06" in found["kl_mean"].reason
    assert found["prefill_speedup"].measured_on == "none"
    assert found["prefill_speedup"].reason == "speed was not measured"


def test_a_bound_without_a_value_is_reported(windows: EvalWindows) -> None:
    model = dense_model(1)
    engine = RecomputingEngine(model)
    report = measure_gates(model, engine, windows, {"decode_speedup": 1.0}, threads=1, speed=False)
    assert [gate.name for gate in report.unmeasured] == ["decode_speedup"]
    assert report.failed == ()


@pytest.mark.parametrize(
    ("name", "value", "bound", "passed"),
    [
        ("kl_mean", 0.1, 0.1, True),
        ("kl_mean", 0.2, 0.1, False),
        ("kl_mean", float("nan"), 0.1, False),
        ("perplexity", 9.0, 10.0, True),
        ("top1_agreement", 0.97, 0.978, False),
        ("top1_agreement", 0.98, 0.978, True),
        ("decode_speedup", 0.9, 1.0, False),
    ],
)
def test_bounds_have_a_direction(name: str, value: float, bound: float, passed: bool) -> None:
    found = judge(name, value, bound)
    assert found.passed is passed
    assert bool(found.reason) is not passed


def test_evaluate_without_a_reference(windows: EvalWindows) -> None:
    model = dense_model(2)
    found = evaluate(RecomputingEngine(model), windows)
    q = log_softmax(whole_logits(model, windows.ids[:, :-1]).reshape(-1, V))
    nll = -q[np.arange(len(q)), windows.ids[:, 1:].ravel()]
    assert found.keys() == {"tokens", "perplexity", "text", "convention"}
    assert found["tokens"] == 92
    assert found["perplexity"] == pytest.approx(np.exp(nll.mean()), rel=1e-6)


def test_evaluate_with_a_reference(windows: EvalWindows) -> None:
    model = dense_model(2)
    found = evaluate(RecomputingEngine(model), windows, reference_model=model, threads=1)
    assert found["kl_mean"] < 1e-9
    assert found["top1_agreement"] == 1
    assert found["perplexity"] == pytest.approx(found["reference_perplexity"], rel=1e-5)
