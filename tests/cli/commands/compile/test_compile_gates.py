"""`optc compile` and its gates: what is recorded, refused and let through."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import Any, cast

import pytest

from optc.artifact.artifact import Artifact
from optc.compiling.judging import float16_ranges
from optc.compiling.judging.engine_gates import EngineGates
from optc.proof.gates import measure
from optc.proof.gates.answers.measure import AnswerReport
from optc.proof.gates.measure import GateReport, judge
from optc.system.hardware.target import Target
from tests.artifact.pages.sample import DECISIONS
from tests.cli.conftest import Optc, nothing_left
from tests.support.stub import StubBackend


@pytest.fixture
def fake_gates(monkeypatch: pytest.MonkeyPatch) -> dict[str, float | None]:
    """Values that the gates will measure; change them before compiling."""
    values: dict[str, float | None] = {"kl_mean": 1e-7, "top1_agreement": 1.0}

    def fake(model: object, executable: object, windows: object, bounds: Any, **_: Any) -> Any:
        gates = tuple(judge(n, v, bounds.get(n), absent="no clock") for n, v in values.items())
        return GateReport(gates, {"tokens": 640})

    monkeypatch.setattr(measure, "measure_gates", fake)
    return values


def test_gates_that_hold_are_recorded(
    compile_tiny: Optc, fake_gates: dict[str, float | None], tmp_path: Path
) -> None:
    value = compile_tiny("--json", gates=True).json
    kl = next(g for g in value["gates"] if g["name"] == "kl_mean")
    assert kl == {
        "name": "kl_mean",
        "value": 1e-7,
        "bound": 1e-6,
        "passed": True,
        "measured_on": "engine",
        "reason": "",
        "engine": "target",
        "windows": None,
    }
    artifact = Artifact.open(tmp_path / "out/a")
    assert artifact.manifest.gated
    assert ("kl_mean", True) in {(g.name, g.passed) for g in artifact.manifest.gates}
    assert artifact.report()["evaluation"]["target"]["tokens"] == 640


def test_the_worst_decisions_are_shown_whether_gates_hold_or_not(
    compile_tiny: Optc,
    fake_gates: dict[str, float | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answered(self: Any, text: Any, executable: Any) -> AnswerReport:
        figures = {"text": "talk.jsonl", "decisions": DECISIONS}
        return AnswerReport((judge("decision_flips", 2.0, None),), cast(Any, None), figures)

    monkeypatch.setattr(EngineGates, "_answered", answered)
    held = compile_tiny(gates=True)
    assert held.code == 0
    fake_gates["kl_mean"] = 0.5
    failed = compile_tiny("--force", gates=True)
    assert failed.code == 4
    for outcome in (held, failed):
        assert "decisions: 120, 100 of them firm, 2 flipped" in outcome.out
        assert "get_weather.unit" in outcome.out


def test_a_gate_that_fails_is_exit_code_4_and_leaves_nothing(
    compile_tiny: Optc, fake_gates: dict[str, float | None], tmp_path: Path
) -> None:
    fake_gates["kl_mean"] = 0.5
    outcome = compile_tiny(gates=True)
    assert outcome.code == 4
    assert "gates: kl_mean: 0.5 is above the bound 1e-06" in outcome.err
    assert "--eval-text FILE judges on text such as the model was trained on" in outcome.err
    assert "--allow-unmeasured" not in outcome.err, "it would not help"
    assert "FAILED" in outcome.out  # the table of what was measured
    assert nothing_left(tmp_path)
    value = compile_tiny("--json", gates=True).json
    assert value["error"]["kind"] == "gate"
    assert value["artifact"] is None
    assert next(g for g in value["gates"] if g["name"] == "kl_mean")["passed"] is False
    assert nothing_left(tmp_path)


def test_a_looser_bound_lets_it_through(
    compile_tiny: Optc, fake_gates: dict[str, float | None]
) -> None:
    fake_gates["kl_mean"] = 0.5
    assert compile_tiny("--gate", "kl_mean=0.6", gates=True).code == 0


def test_all_gates_are_measured_and_none_judged(
    compile_tiny: Optc, fake_gates: dict[str, float | None], tmp_path: Path
) -> None:
    fake_gates["top1_agreement"] = 0.1
    outcome = compile_tiny("--gate", "none", "--json", gates=True)
    assert outcome.code == 0
    assert {(g["bound"], g["passed"]) for g in outcome.json["gates"]} == {(None, None)}
    assert "top1_agreement" in {g["name"] for g in outcome.json["gates"]}
    assert any("nothing was judged" in text for text in outcome.json["warnings"])
    manifest = Artifact.open(tmp_path / "out/a").manifest
    assert manifest.gated
    assert set(manifest.recipe["gates"].values()) == {None}


def test_keep_failed_keeps_the_result_aside(
    compile_tiny: Optc, fake_gates: dict[str, float | None], tmp_path: Path
) -> None:
    fake_gates["top1_agreement"] = 0.1
    outcome = compile_tiny("--keep-failed", "--json", gates=True)
    assert outcome.code == 4
    assert outcome.json["artifact"] == str(tmp_path / "out/a.failed")
    assert os.listdir(tmp_path / "out") == ["a.failed"]
    gates = Artifact.open(tmp_path / "out/a.failed").manifest.gates
    assert ("top1_agreement", False) in {(g.name, g.passed) for g in gates}


def test_gates_that_cannot_be_measured_fail_unless_allowed(
    compile_tiny: Optc,
    fake_gates: dict[str, float | None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    future = Target("x86-64-v9", "cpu", ("avx9000",))
    monkeypatch.setattr("optc.compiling.resolving.engines.parse_target", lambda *_: future)
    refused = compile_tiny("--target", "x86-64-v9", gates=True)
    assert refused.code == 2
    assert nothing_left(tmp_path)
    outcome = compile_tiny("--target", "x86-64-v9", "--keep-failed", gates=True)
    assert outcome.code == 4
    names = "kl_mean, kl_p99, top1_agreement, perplexity_ratio"
    reason = "it needs avx9000, which this CPU lacks"
    assert f"error: gates: {names}: {reason} (the result is kept in " in outcome.err
    assert "--allow-unmeasured lets through what cannot be measured here" in outcome.err
    value = compile_tiny("--target", "x86-64-v9", "--allow-unmeasured", "--json", gates=True).json
    assert {g["measured_on"] for g in value["gates"]} == {"none"}
    assert any(f"gates without a verdict: {names}: {reason}" in text for text in value["warnings"])


def test_a_table_for_people(compile_tiny: Optc, fake_gates: dict[str, float | None]) -> None:
    outcome = compile_tiny(gates=True)
    assert "kl_mean" in outcome.out
    assert "passed" in outcome.out
    assert "digest " in outcome.out
    stages = ("import", "passes", "tokenizer", "build", "gates", "write")
    assert "".join(f"· {stage}\n" for stage in stages) in outcome.err


def test_the_time_is_that_of_the_whole_command(
    compile_tiny: Optc, fake_gates: dict[str, float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optc.cli.output._BEGAN", time.perf_counter() - 1000)
    found = re.search(r" in (\d+)\.\d s, peak memory", compile_tiny(gates=True).out)
    assert found is not None
    assert int(found[1]) >= 1000


def test_too_little_memory_is_refused_before_the_import(compile_tiny: Optc, tmp_path: Path) -> None:
    outcome = compile_tiny("--max-ram", "300MiB")
    assert outcome.code == 2
    assert "needs 485.0 MiB of memory or more, but 300.0 MiB are allowed" in outcome.err
    assert "import" not in outcome.err.partition("error:")[0]
    assert nothing_left(tmp_path)


def test_a_compile_checks_engines_in_float16_and_leaves_nothing(
    compile_tiny: Optc,
    fake_gates: dict[str, float | None],
    stub: StubBackend,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(stub, "computes_in", "float16")
    assert compile_tiny("--force", gates=True).code == 0
    shutil.rmtree(tmp_path / "out")
    monkeypatch.setattr(float16_ranges, "LARGEST", 1e-3)
    outcome = compile_tiny(gates=True)
    assert outcome.code == 2
    assert "engine target: values of the model exceed float16" in outcome.err
    assert nothing_left(tmp_path)
    assert compile_tiny().code == 0, "without gates nothing is measured"
