"""What commands show of a report is as a compile writes it, or is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from optc.artifact.report import Report, read_report
from optc.errors import ArtifactError

PASS = {"name": "fold", "count": 2, "seconds": 0.5, "details": {"full": 2}}
GATE = {
    "name": "kl_mean",
    "value": 1e-6,
    "bound": None,
    "passed": None,
    "measured_on": "engine",
    "reason": "",
    "engine": "target",
}

TOKEN = {"token": 3, "text": "a", "reference_probability": 0.5, "engine_probability": None}
CONTEXT = {"kl": 1.5, "context": "x", "next": {"token": 1, "text": None}}
CONTEXT |= {"reference": TOKEN, "engine": TOKEN}


def contexts(**changes: Any) -> dict[str, Any]:
    return {"evaluation": {"target": {"worst_contexts": [{**CONTEXT, **changes}]}}}


def test_parts_that_no_command_shows_are_as_they_are(tmp_path: Path) -> None:
    report = {"seconds": 1.5, "machine": [1, {"x": None}], "passes": [], "verified": [{}]}
    (tmp_path / "r").write_text(json.dumps(report))
    assert read_report(tmp_path / "r") == report


def read(folder: Path, **parts: Any) -> dict[str, Any]:
    (folder / "r").write_text(json.dumps(parts))
    return read_report(folder / "r")


def test_passes_and_gates_are_read(tmp_path: Path) -> None:
    bare = {key: GATE[key] for key in ("name", "value", "bound", "passed", "measured_on")}
    parts = {
        "passes": [PASS, {"name": "dce", "count": 0, "seconds": 0}],
        "gates": [GATE, {**bare, "value": None, "bound": 0.1, "passed": False}],
        "verified": [{"engines": ["target"]}],
        "evaluation": {
            "target": {"tokens": 7, "worst_contexts": [CONTEXT]},
            "other": {"lowered-onnx": {"worst_contexts": [CONTEXT]}},
        },
    }
    assert read(tmp_path, **parts) == parts


def without(entry: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != key}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"passes": {}}, "passes: expected 'array', got 'object'"),
        ({"passes": [7]}, r"passes\[0\]: expected 'object', got 'int'"),
        ({"passes": [without(PASS, "name")]}, "missing required field 'name'"),
        ({"passes": [{**PASS, "count": -1}]}, "count: expected 'int' >= 0"),
        ({"passes": [{**PASS, "seconds": "1"}]}, "seconds: expected 'float', got 'str'"),
        ({"passes": [{**PASS, "seconds": None}]}, "seconds: expected 'float', got 'null'"),
        ({"passes": [without(PASS, "seconds")]}, "missing required field 'seconds'"),
        ({"passes": [{**PASS, "details": []}]}, "details: expected 'object . null', got 'array'"),
        ({"gates": {}}, "gates: expected 'array', got 'object'"),
        *(
            ({"gates": [without(GATE, key)]}, f"missing required field '{key}'")
            for key in ("name", "value", "bound", "passed", "measured_on")
        ),
        ({"gates": [{**GATE, "value": "1"}]}, "value: expected 'float . null', got 'str'"),
        ({"gates": [{**GATE, "bound": "1"}]}, "bound: expected 'float . null', got 'str'"),
        ({"gates": [{**GATE, "passed": 1}]}, "passed: expected 'bool . null', got 'int'"),
        ({"gates": [{**GATE, "measured_on": 1}]}, "measured_on: expected 'str', got 'int'"),
        ({"gates": [{**GATE, "reason": 1}]}, "reason: expected 'str . null', got 'int'"),
        ({"gates": [{**GATE, "engine": 1}]}, "engine: expected 'str . null', got 'int'"),
        ({"evaluation": 7}, "evaluation: expected 'object', got 'int'"),
        ({"evaluation": {"a": 7}}, r"evaluation\[...\]: expected 'object', got 'int'"),
        ({"evaluation": {"a": {"worst_contexts": {}}}}, "worst_contexts: expected 'array', got"),
        ({"evaluation": {"a": {"lowered-onnx": 1}}}, "lowered-onnx: expected 'object . null'"),
        (contexts(kl="1"), r"worst_contexts\[0\].kl: expected 'float . null', got 'str'"),
        (contexts(context=1), "context: expected 'str . null', got 'int'"),
        (contexts(next=1), "next: expected 'object', got 'int'"),
        (contexts(engine={**TOKEN, "token": -1}), "engine.token: expected 'int' >= 0"),
        (contexts(engine={**TOKEN, "text": 1}), "engine.text: expected 'str . null', got 'int'"),
        (
            contexts(reference={**TOKEN, "engine_probability": "1"}),
            "reference.engine_prob",
        ),
        (contexts(reference={**TOKEN, "reference_probability": "1"}), "expected 'float . null'"),
        ({"verified": 7}, "verified: expected 'array', got 'int'"),
        ({"verified": [7]}, r"verified\[0\]: expected 'object', got 'int'"),
    ],
)
def test_what_no_compile_writes_is_refused(
    tmp_path: Path, parts: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArtifactError, match=message) as caught:
        read(tmp_path, **parts)
    assert str(caught.value).startswith(str(tmp_path / "r"))


def test_a_report_has_a_short_repr() -> None:
    assert repr(Report()) == "<optc.Report 0 gates, 0 passes: empty>"
    report = Report(gates=[{}, {}], passes=[{}], seconds=1.0)
    assert repr(report) == "<optc.Report 2 gates, 1 passes: gates, passes, seconds>"


DISTRIBUTION = {
    "first": 1e-8,
    "bins_per_decade": 4,
    "counts": [0, 3],
    **dict.fromkeys(("p50", "p90", "p99", "p99_9"), 1e-6),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": [0] * 1001}, "counts: expected 'array' of length <= 1000"),
        ({"counts": [-1]}, "counts[0]: expected 'int' >= 0"),
        ({"first": 0}, "first: expected 'float' > 0.0"),
        ({"bins_per_decade": 0}, "bins_per_decade: expected 'int' >= 1"),
        ({"p99": "high"}, "p99: expected 'float | null', got 'str'"),
    ],
)
def test_distributions_are_checked(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "report.json"
    for found in (DISTRIBUTION, None):
        path.write_text(json.dumps({"evaluation": {"target": {"kl_distribution": found}}}))
        assert read_report(path)
    wrong = {"kl_distribution": DISTRIBUTION | change}
    path.write_text(json.dumps({"evaluation": {"target": wrong}}))
    with pytest.raises(ArtifactError, match=re.escape(message)):
        read_report(path)


def test_kinds_of_tensors_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    kind = {"kind": "head", "tensors": 1, "bytes": 2**40, "scale_bytes": 0}
    path.write_text(json.dumps({"tensors": [kind]}))
    assert read_report(path)
    path.write_text(json.dumps({"tensors": [kind | {"bytes": -1}]}))
    with pytest.raises(ArtifactError, match=r"tensors\[0\].bytes: expected 'int' >= 0"):
        read_report(path)


def test_a_notebook_shows_passes_and_gates() -> None:
    shown = Report(passes=[PASS], gates=[GATE])
    assert repr(shown) == "<optc.Report 1 gates, 1 passes: gates, passes>"
    assert repr(Report()) == "<optc.Report 0 gates, 0 passes: empty>"
    html = shown._repr_html_()
    assert "kl_mean" in html
    assert "fold" in html
