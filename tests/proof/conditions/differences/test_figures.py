"""Figures of artifacts and of reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from optc.errors import ArtifactError
from optc.proof.conditions.differences.figures import figures_of, gate_changes, size_changes
from optc.proof.conditions.differences.subject import Subject
from tests.proof.conditions.differences.artifacts import gate, write_changed

REPORT: dict[str, Any] = {
    "gates": [
        gate("kl_mean", 0.25, bound=None, passed=None, measured_on="lowered-onnx"),
        gate("kl_mean", 0.5, passed=False),
        gate("decode_speedup", None),
    ],
    "seconds": 2.5,
    "peak_anon_bytes": 1000,
    "storage": {"bytes": 77, "linked_bytes": 0, "duplicated_bytes": 0},
    "engines": [{"name": "target", "bytes": 50, "weight_bytes": 40}],
}


def subject(report: dict[str, Any]) -> Subject:
    return Subject("report.json", report)


def test_figures_of_a_report() -> None:
    assert figures_of(subject(REPORT)) == {
        "bytes": {"": 77},
        "engine_bytes": {"target": 50},
        "weight_bytes": {"target": 40},
        "seconds": {"": 2.5},
        "peak_anon_bytes": {"": 1000},
        "kl_mean": {"target": 0.5},
        "decode_speedup": {"target": None},
    }
    assert figures_of(subject({})) == {}


def test_figures_of_an_artifact(tmp_path: Path) -> None:
    artifact = write_changed(tmp_path / "a", report={"seconds": 1.0})
    found = figures_of(Subject("a", artifact.report(), artifact.manifest, artifact))
    # Its three libraries have the same contents, and are stored once.
    assert found["bytes"] == {"": 10240 + 4 + 47}
    assert found["engine_bytes"] == {"target": 10240 + 3 * 4}
    assert found["kv_bytes_per_token"] == {"target": 128}
    assert found["seconds"] == {"": 1}


def test_gates_side_by_side() -> None:
    before = subject({"gates": [gate("kl_mean", 0.25)]})
    first, second = gate_changes(before, subject(REPORT))
    assert first == {
        "name": "kl_mean",
        "case": "target",
        "a": 0.25,
        "b": 0.5,
        "ratio": 2,
        "bound": 1.0,
        "passed": False,
    }
    assert (second["name"], second["a"], second["b"]) == ("decode_speedup", None, None)
    (gone,) = [row for row in gate_changes(subject(REPORT), before) if row["name"] != "kl_mean"]
    assert (gone["bound"], gone["passed"]) == (None, None)


def test_sizes_side_by_side() -> None:
    found = size_changes(subject({"seconds": 2.0}), subject(REPORT))
    assert {row["name"]: row["ratio"] for row in found}["seconds"] == 1.25
    assert not {"kl_mean", "decode_speedup"} & {row["name"] for row in found}


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ({"seconds": "long"}, "report.json: seconds: expected 'float . null', got 'str'"),
        ({"storage": {"bytes": -1}}, "storage.bytes: expected 'int' >= 0"),
        (
            {"engines": [{"name": 3, "weight_bytes": 1}]},
            r"engines\[0\].name: expected 'str",
        ),
        ({"engines": 3}, "engines: expected 'array', got 'int'"),
    ],
)
def test_damaged_reports_are_refused(report: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        figures_of(subject(report))
