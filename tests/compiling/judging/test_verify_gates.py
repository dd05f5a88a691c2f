"""Which gates are open, and how later verdicts are kept."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import GateEntry
from optc.compiling.judging import verify_gates
from optc.compiling.judging.verify_gates import (
    OpenGatesError,
    VerifiedGates,
    bounds_of,
    without_verdict,
)
from optc.proof.gates.measure import GateResult
from tests.artifact.toy import toy_engine, toy_manifest, write_toy

GOOD = GateResult("kl_mean", 0.1, 0.5, True, "engine", "", "a")
BAD = GateResult("kl_p99", 0.9, 0.5, False, "engine", "too much", "a")
FREE = GateResult("perplexity", 7.0, None, None, "engine", "", "a")
ABSENT = GateResult("kl_mean", None, 0.5, None, "none", "no GPU", "b")


def test_engines_with_a_bounded_gate_that_was_not_judged_on_them() -> None:
    gates = (
        GateEntry("kl_mean", 0.5, True, "judged"),
        GateEntry("kl_mean", 0.5, False, "failed"),
        GateEntry("perplexity", None, None, "unbounded"),
        GateEntry("kl_mean", 0.5, None, "open"),
        GateEntry("kl_mean", 0.5, True, "open", lowered=True),
        GateEntry("kl_mean", 0.5, None, "lowered", lowered=True),
    )
    engines = tuple(toy_engine(name) for name in dict.fromkeys(gate.engine for gate in gates))
    manifest = structs.replace(toy_manifest((), *engines), gates=gates)
    assert [engine.name for engine in without_verdict(manifest)] == ["open"]


def test_bounds_are_those_of_the_engines() -> None:
    gates = (
        GateEntry("kl_mean", 0.5, None, "a"),
        GateEntry("perplexity", None, None, "a"),
        GateEntry("kl_p99", 9.0, True, "a", lowered=True),
    )
    manifest = structs.replace(toy_manifest(()), gates=gates)
    assert bounds_of(manifest) == {"kl_mean": 0.5, "perplexity": None}


def test_gates_hold_or_are_named() -> None:
    VerifiedGates((GOOD, FREE)).check()
    with pytest.raises(OpenGatesError) as caught:
        VerifiedGates((GOOD, BAD, FREE, ABSENT)).check()
    assert caught.value.exit_code == 4
    assert caught.value.message == "a: kl_p99: too much; b: kl_mean: no GPU"
    assert [gate["name"] for gate in caught.value.details["gates"]] == [
        "kl_mean",
        "kl_p99",
        "perplexity",
        "kl_mean",
    ]


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    """Its report has an open gate of two engines each, one of them measured on lowered ONNX too."""
    written = write_toy(tmp_path / "a")
    gate = dataclasses.asdict(ABSENT)
    lowered = {**gate, "measured_on": "lowered-onnx", "value": 0.2}
    report = {"seconds": 1.5, "gates": [{**gate, "engine": "a"}, {**lowered, "engine": "a"}, gate]}
    (written.path / "report.json").write_text(json.dumps(report))
    return written


def test_new_values_replace_those_of_the_measured_engines(artifact: Artifact) -> None:
    assert verify_gates.keep_verdicts(artifact, ["a"], [GOOD, BAD, ABSENT]) == ()
    report = artifact.report()
    assert report["seconds"] == 1.5
    kept = [(g["engine"], g["name"], g["measured_on"], g["value"]) for g in report["gates"]]
    assert kept == [
        ("a", "kl_mean", "lowered-onnx", 0.2),
        ("b", "kl_mean", "none", None),
        ("a", "kl_mean", "engine", 0.1),
        ("a", "kl_p99", "engine", 0.9),
    ]
    (fact,) = report["verified"]
    assert fact["engines"] == ["a"]
    assert fact["machine"]["threads"] >= 1
    assert (
        verify_gates.keep_verdicts(artifact, ["b"], [dataclasses.replace(GOOD, engine="b")]) == ()
    )
    assert [entry["engines"] for entry in artifact.report()["verified"]] == [["a"], ["b"]]
    assert sorted(path.name for path in artifact.path.glob("*.json")) == [
        "manifest.json",
        "provenance.json",
        "report.json",
        "sbom.cdx.json",
    ]


def test_a_report_that_cannot_be_written_is_a_warning(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    before = artifact.report()
    monkeypatch.setattr(Path, "replace", full)
    (warning,) = verify_gates.keep_verdicts(artifact, ["a"], [GOOD])
    assert warning.endswith(
        "report.json could not be written, so the verdicts are not kept: No space left on device"
    )
    assert artifact.report() == before
    assert not [one for one in artifact.path.iterdir() if one.name.startswith((".", "tmp"))]


def test_a_report_stays_as_readable_as_it_was(artifact: Artifact) -> None:
    report = artifact.path / "report.json"
    report.chmod(0o644)
    assert verify_gates.keep_verdicts(artifact, ["a"], [GOOD]) == ()
    assert report.stat().st_mode & 0o777 == 0o644
