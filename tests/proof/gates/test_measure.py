"""Gates through an engine: exact engines pass, disturbed ones are caught."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir
import pytest

from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.proof.gates import measure
from optc.proof.gates.early_end import GateTests
from optc.proof.gates.measure import (
    GateReport,
    GateResult,
    compare,
    evaluate,
    is_open,
    judge,
    measure_gates,
)
from optc.proof.gates.speed import SpeedFigures
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.text import EvalWindows
from optc.runtime.executable.executable import Executable
from tests.proof.gates.test_divergence import log_softmax
from tests.proof.reference.test_blockwise import whole_logits
from tests.support.dense_models import V, dense_model
from tests.support.recomputing_engine import RecomputingEngine

BOUNDS = {"kl_mean": 1e-6, "top1_agreement": 0.99, "perplexity_ratio": 1.001, "kl_p99": None}


def failed_of(report: GateReport) -> list[GateResult]:
    return [gate for gate in report.gates if gate.passed is False]


def unmeasured_of(report: GateReport) -> list[GateResult]:
    return [gate for gate in report.gates if is_open(gate)]


def measured(
    model: ir.Model,
    executable: Executable,
    windows: EvalWindows,
    bounds: Mapping[str, float | None],
    threads: int = 1,
    **options: Any,
) -> GateReport:
    """By a reference of its own."""
    reference = BlockwiseReference(model, threads)
    try:
        return measure_gates(reference, executable, windows, bounds, **options)
    finally:
        reference.close()


@pytest.fixture
def windows() -> EvalWindows:
    ids = np.random.default_rng(7).integers(0, V, (4, 24), np.int32)
    return EvalWindows(ids, "a text", "four windows")


@pytest.mark.parametrize(
    ("bounds", "probes", "judged"),
    [({}, 2, False), ({"copy_nll_added": 9.0}, 4, False), ({"decode_speedup": 1e-9}, 2, True)],
)
def test_figures_that_no_bound_judges_are_measured_less(
    windows: EvalWindows,
    monkeypatch: pytest.MonkeyPatch,
    bounds: dict[str, float],
    probes: int,
    judged: bool,
) -> None:
    model, seen, timed = dense_model(2), [], measure.measure_speed

    def noted(*given: Any, **more: Any) -> SpeedFigures:
        seen.append(more["judged"])
        return timed(*given, **more)

    monkeypatch.setattr(measure, "measure_speed", noted)
    copies = measured(model, RecomputingEngine(model), windows, bounds).figures["copies"]
    assert copies["tokens"] == probes * (copies["copied_tokens"] - 1)
    assert seen == [judged]


def test_an_exact_engine_passes(windows: EvalWindows) -> None:
    model = dense_model(2, window=4)
    stages: list[str] = []
    report = measured(
        model,
        RecomputingEngine(model),
        windows,
        BOUNDS,
        progress=lambda stage, done, total: stages.append(f"{stage} {done}/{total}"),
    )
    assert failed_of(report) == unmeasured_of(report) == []
    by_name = {gate.name: gate for gate in report.gates}
    passed = [g.name for g in report.gates if g.passed]
    assert passed == [name for name in TEXT_GENERATION.gates if BOUNDS.get(name)]
    assert {g.passed for g in report.gates} == {True, None}
    assert by_name["kl_mean"].value < 1e-9
    assert by_name["top1_agreement"].value == by_name["top5_agreement"].value == 1
    assert by_name["common_continuation"].value == 12
    assert report.figures["continuations"]["common"] == (12, 12, 12, 12)
    assert abs(by_name["copy_nll_added"].value) < 1e-5
    assert report.figures["copies"]["copied_tokens"] == 10
    assert by_name["prefill_speedup"].value > 0
    assert report.figures["tokens"] == 4 * 23
    low, high = report.figures["kl_mean_interval"]
    assert low <= by_name["kl_mean"].value <= high
    assert report.figures["ended_early"] == []
    assert report.figures["text"] == "a text"
    assert report.figures["convention"] == "four windows"
    assert stages == [*(f"divergence {n}/4" for n in range(1, 5)), "speed 1/1"]
    assert report.figures["baseline"].endswith("whole"), (
        "a small model fits where no limit is given"
    )
    assert dataclasses.asdict(report.gates[0]) == {
        "name": "kl_mean",
        "value": by_name["kl_mean"].value,
        "bound": 1e-6,
        "passed": True,
        "measured_on": "engine",
        "reason": "",
        "engine": "target",
        "windows": None,
    }


def test_a_disturbed_engine_fails_with_the_oracle_figures(
    windows: EvalWindows, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = dense_model(2)
    engine = RecomputingEngine(model, disturb=lambda logits: 1.3 * logits)
    monkeypatch.setattr(GateTests, "add", lambda *_: [])  # to the end, though nothing can hold
    report = measured(model, engine, windows, BOUNDS, speed=False)
    p = log_softmax(whole_logits(model, windows.ids[:, :-1]).reshape(-1, V))
    q = log_softmax(1.3 * whole_logits(model, windows.ids[:, :-1]).reshape(-1, V))
    kl = (np.exp(p) * (p - q)).sum(axis=1)
    found = {gate.name: gate for gate in report.gates}
    assert found["kl_mean"].value == pytest.approx(kl.mean(), rel=1e-4)
    assert found["kl_p99"].value == pytest.approx(np.percentile(kl, 99), rel=1e-4)
    assert found["kl_max"].value == pytest.approx(kl.max(), rel=1e-4)
    worst = report.figures["worst_contexts"]
    assert sum(report.figures["kl_distribution"]["counts"]) == report.figures["tokens"]
    order = np.argsort(-kl)[:8]
    assert [23 * entry["window"] + entry["position"] for entry in worst] == order.tolist()
    assert [entry["kl"] for entry in worst] == pytest.approx(kl[order], rel=1e-3)
    nll = -q[np.arange(len(q)), windows.ids[:, 1:].ravel()]
    assert found["perplexity"].value == pytest.approx(np.exp(nll.mean()), rel=1e-4)
    assert [gate.name for gate in failed_of(report)] == ["kl_mean", "perplexity_ratio"]
    assert "is above the bound 1e-06" in found["kl_mean"].reason
    assert found["prefill_speedup"].measured_on == "none"
    assert found["prefill_speedup"].reason == "speed was not measured"


ALL_BOUNDED = {
    **dict.fromkeys(measure.QUALITY_GATES, 1000000000.0),
    "top1_agreement": 0.0,
    "top5_agreement": 0.0,
    "common_continuation": 0.0,
}


def spoiled(logits: np.ndarray, wrong: float) -> np.ndarray:
    changed = logits.copy()
    changed[-1, 2] = wrong
    return changed


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_gate_over_what_is_no_number_fails_and_says_where(
    windows: EvalWindows, wrong: float
) -> None:
    model = dense_model(2)
    engine = RecomputingEngine(model, disturb=lambda logits: spoiled(logits, wrong))
    report = measured(model, engine, windows, ALL_BOUNDED, speed=False)
    found = {gate.name: gate for gate in report.gates}
    for name in ("kl_mean", "kl_p99", "kl_max", "perplexity", "perplexity_ratio"):
        assert (found[name].passed, found[name].value) == (False, None), name
        assert "the engine's logits are no finite numbers at position" in found[name].reason
    assert report.figures["worst_contexts"][0]["kl"] is None
    json.dumps([report.figures, [dataclasses.asdict(g) for g in report.gates]], allow_nan=False)


def test_a_reference_of_no_numbers_fails_the_gates(windows: EvalWindows) -> None:
    model = dense_model(2)
    for name, value in model.graph.initializers.items():
        if value.const_value is not None and value.const_value.dtype == ir.DataType.FLOAT:
            broken = value.const_value.numpy().copy()
            broken[...] = np.nan
            model.graph.initializers[name].const_value = ir.tensor(broken)
    report = measured(model, RecomputingEngine(model), windows, ALL_BOUNDED, speed=False)
    found = {gate.name: gate for gate in report.gates}
    assert "the reference's logits are no finite numbers" in found["kl_mean"].reason
    assert not any(g.passed for g in report.gates if g.name in ("kl_mean", "perplexity_ratio"))
    agreement = found["top1_agreement"].value
    assert agreement == 0, "token 0 of nothing is no agreement"
    assert not found["common_continuation"].value


@pytest.mark.parametrize(
    ("factor", "reason"), [(np.nan, "the engine's logits"), (1e6, "the perplexity is larger")]
)
@pytest.mark.parametrize("referenced", [False, True])
def test_scores_of_what_is_no_number_are_none(
    windows: EvalWindows, factor: float, reason: str, referenced: bool
) -> None:
    model = dense_model(2)
    engine = RecomputingEngine(model, disturb=lambda logits: np.float32(factor) * logits)
    found = evaluate(engine, windows, reference_model=model if referenced else None, threads=1)
    assert found["perplexity"] is None
    json.dumps(found, allow_nan=False)
    assert found["not_measured"].startswith(reason)


def test_a_hopeless_engine_ends_early_and_the_rest_is_not_run(
    windows: EvalWindows, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, runs = dense_model(2), list[int]()
    monkeypatch.setattr("optc.proof.reference.blockwise.BLOCK_ROWS", 23)
    run = BlockwiseReference.run

    def counted(self: BlockwiseReference, tokens: np.ndarray, **more: Any) -> np.ndarray:
        runs.append(len(tokens))
        return run(self, tokens, **more)

    monkeypatch.setattr(BlockwiseReference, "run", counted)
    monkeypatch.setattr(measure, "compare_continuations", None)
    engine = RecomputingEngine(model, disturb=lambda logits: 1.3 * logits)
    report = measured(model, engine, windows, BOUNDS | {"copy_nll_added": 0.1})
    found = {gate.name: gate for gate in report.gates}
    assert runs == [1], "the reference ran one of four windows"
    failed = found["kl_mean"]
    assert failed.passed is False
    assert failed.value is not None
    assert failed.value > 0.01
    assert failed.windows == 1
    assert failed.reason == (
        f"{failed.value:.6g} is above the bound 1e-06, ended early after 1 of 4 windows: it cannot "
        "hold any more"
    )
    assert failed_of(report) == [failed]
    assert unmeasured_of(report) == [], "what another gate ended is no open gate"
    why = "kl_mean ended the gates after 1 of 4 windows"
    for name in ("perplexity_ratio", "copy_nll_added", "decode_speedup"):
        assert (found[name].passed, found[name].reason, found[name].windows) == (None, why, 1)
    assert (found["perplexity_ratio"].value is None, found["copy_nll_added"].value) == (False, None)
    assert report.figures["ended_early"] == [
        {"gate": "kl_mean", "windows": 1, "of": 4, "certain": True}
    ]
    assert (report.figures["windows_measured"], report.figures["windows"]) == (1, 4)


def test_a_bound_without_a_value_is_reported(windows: EvalWindows) -> None:
    model = dense_model(1)
    engine = RecomputingEngine(model)
    report = measured(model, engine, windows, {"decode_speedup": 1.0}, speed=False)
    assert [gate.name for gate in unmeasured_of(report)] == ["decode_speedup"]
    assert failed_of(report) == []


@pytest.mark.parametrize(
    ("name", "value", "bound", "passed"),
    [
        ("kl_mean", 0.1, 0.1, True),
        ("kl_mean", 0.2, 0.1, False),
        ("kl_mean", float("nan"), 0.1, False),
        ("kl_max", 0.2, 0.1, False),
        ("top5_agreement", 0.97, 0.98, False),
        ("common_continuation", 20.0, 16.0, True),
        ("copy_nll_added", 0.03, 0.02, False),
        ("perplexity", 9.0, 10.0, True),
        ("top1_agreement", 0.97, 0.978, False),
        ("top1_agreement", 0.978, 0.978, True),
        ("top1_agreement", 0.98, 0.978, True),
        ("decode_speedup", 0.9, 1.0, False),
    ],
)
def test_bounds_have_a_direction(name: str, value: float, bound: float, passed: bool) -> None:
    found = judge(name, value, bound)
    assert found.passed is passed
    assert bool(found.reason) is not passed


class Reference(BlockwiseReference):
    """Notes its threads, and that it was closed."""

    opened: ClassVar[list[Reference]] = []

    def __init__(self, model: ir.Model, threads: int) -> None:
        super().__init__(model, threads)
        self.threads, self.closed = threads, False
        self.opened.append(self)

    def close(self) -> None:
        super().close()
        self.closed = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Reference]:
    monkeypatch.setattr(measure, "BlockwiseReference", Reference)
    monkeypatch.setattr(measure, "usable_threads", lambda: 3)
    monkeypatch.setattr(Reference, "opened", [])
    return Reference.opened


@pytest.mark.parametrize(("threads", "used"), [(None, 3), (1, 1)])
def test_the_reference_has_all_threads_unless_told_and_is_closed(
    windows: EvalWindows, opened: list[Reference], threads: int | None, used: int
) -> None:
    model = dense_model(1)
    evaluate(RecomputingEngine(model), windows, reference_model=model, threads=threads)
    assert [(each.threads, each.closed) for each in opened] == [(used, True)]


def test_the_baseline_of_the_speed_has_the_threads_of_the_reference(
    windows: EvalWindows, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    measure_speed = measure.measure_speed

    def noted(*arguments: Any, threads: int, **options: Any) -> Any:
        used.append(threads)
        return measure_speed(*arguments, threads=threads, **options)

    monkeypatch.setattr(measure, "measure_speed", noted)
    model = dense_model(1)
    measured(model, RecomputingEngine(model), windows, {}, threads=2)
    assert used == [2]


def test_the_reference_is_closed_where_the_engine_fails(
    windows: EvalWindows, opened: list[Reference]
) -> None:
    def fail(logits: np.ndarray) -> np.ndarray:
        raise RuntimeError("anything")

    model = dense_model(1)
    with pytest.raises(RuntimeError, match="anything"):
        compare(model, RecomputingEngine(model, disturb=fail), windows, threads=1)
    assert opened[0].closed


def test_the_report_says_how_long_each_part_took(
    windows: EvalWindows, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([100.0, 103.0, 110.0])
    monkeypatch.setattr(measure, "time", SimpleNamespace(monotonic=lambda: next(times)))
    model = dense_model(1)
    figures = measured(model, RecomputingEngine(model), windows, {}).figures
    assert (figures["seconds_quality"], figures["seconds_speed"]) == (3, 7)


@pytest.mark.parametrize(("ids", "pool"), [(25, 24), (26, 32)])
def test_evaluate_allocates_for_one_window(ids: int, pool: int) -> None:
    """The last token of a window is only predicted; a block has eight."""
    model = dense_model(1)
    engine = RecomputingEngine(model)
    stages: list[str] = []
    evaluate(
        engine,
        EvalWindows(np.zeros((2, ids), np.int32), "a text", "two windows"),
        progress=lambda stage, done, total: stages.append(f"{stage} {done}/{total}"),
    )
    assert [len(tokens) for tokens in engine.pools] == [pool, pool]
    assert stages == ["perplexity 1/2", "perplexity 2/2"]


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
    assert found["top1_agreement"] == found["top5_agreement"] == 1
    assert found["perplexity"] == pytest.approx(found["reference_perplexity"], rel=1e-5)


@pytest.mark.parametrize(
    ("spread", "passed"),
    [
        ((1.2, 1.4), True),
        ((1.1, 1.4), True),
        ((1.05, 1.4), None),
        ((0.9, 1.1), None),
        ((0.9, 1.05), False),
    ],
)
def test_a_bound_on_speed_within_what_rounds_gave_is_not_judged(
    windows: EvalWindows,
    monkeypatch: pytest.MonkeyPatch,
    spread: tuple[float, float],
    passed: bool | None,
) -> None:
    """The bound is 1.1; the median is the middle of the rounds."""

    def noisy(*_: Any, **__: Any) -> SpeedFigures:
        middle = sum(spread) / 2
        return SpeedFigures(1, 1, 1, 1.0, 1.0, 1.0, 1.0, "whole", 5.0, middle, (0.0, 9.0), spread)

    monkeypatch.setattr(measure, "measure_speed", noisy)
    model = dense_model(1)
    report = measured(model, RecomputingEngine(model), windows, {"decode_speedup": 1.1})
    gate = next(g for g in report.gates if g.name == "decode_speedup")
    assert (gate.value, gate.passed) == (sum(spread) / 2, passed)
    assert [g.name for g in unmeasured_of(report)] == (["decode_speedup"] if passed is None else [])
    assert [g.name for g in failed_of(report)] == (["decode_speedup"] if passed is False else [])
    low, high = spread
    noise = f"the machine is too noisy, rounds from {low:.3g} to {high:.3g} include the bound 1.1"
    assert (noise in gate.reason) == (passed is None)
    free = next(g for g in report.gates if g.name == "prefill_speedup")
    assert (free.passed, free.reason) == (None, ""), "without a bound there is nothing to judge"
