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
        ({"passes": {}}, "'passes' is not list but dict"),
        ({"passes": [7]}, "passes.0.: is not a JSON object but int"),
        ({"passes": [without(PASS, "name")]}, "the key 'name' is missing"),
        ({"passes": [{**PASS, "count": -1}]}, "'count' is -1, not within 0"),
        ({"passes": [{**PASS, "seconds": "1"}]}, "'seconds' is not float but str"),
        ({"passes": [{**PASS, "seconds": None}]}, "'seconds' is null or missing"),
        ({"passes": [without(PASS, "seconds")]}, "'seconds' is null or missing"),
        ({"passes": [{**PASS, "details": []}]}, "'details' is not dict but list"),
        ({"gates": {}}, "'gates' is not list but dict"),
        *(
            ({"gates": [without(GATE, key)]}, f"the key '{key}' is missing")
            for key in ("name", "value", "bound", "passed", "measured_on")
        ),
        ({"gates": [{**GATE, "value": "1"}]}, "'value' is not float but str"),
        ({"gates": [{**GATE, "bound": "1"}]}, "'bound' is not float but str"),
        ({"gates": [{**GATE, "passed": 1}]}, "'passed' is not bool but int"),
        ({"gates": [{**GATE, "measured_on": 1}]}, "'measured_on' is not str but int"),
        ({"gates": [{**GATE, "reason": 1}]}, "'reason' is not str but int"),
        ({"gates": [{**GATE, "engine": 1}]}, "'engine' is not str but int"),
        ({"evaluation": 7}, "'evaluation' is not dict but int"),
        ({"evaluation": {"a": 7}}, "'a' is not dict but int"),
        ({"evaluation": {"a": {"worst_contexts": {}}}}, "'worst_contexts' is not list but dict"),
        ({"evaluation": {"a": {"lowered-onnx": 1}}}, "'lowered-onnx' is not dict but int"),
        (contexts(kl="1"), "'kl' is not float but str"),
        (contexts(context=1), "'context' is not str but int"),
        (contexts(next=1), "'next' is not dict but int"),
        (contexts(engine={**TOKEN, "token": -1}), "'token' is -1"),
        (contexts(engine={**TOKEN, "text": 1}), "'text' is not str but int"),
        (contexts(reference={**TOKEN, "engine_probability": "1"}), "is not float but str"),
        (contexts(reference={**TOKEN, "reference_probability": "1"}), "is not float but str"),
        ({"verified": 7}, "'verified' is not list but int"),
        ({"verified": [7]}, "'verified' holds int, not dict"),
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
        ({"counts": [0] * 1001}, "has more than 1000 bins"),
        ({"counts": [-1]}, "holds -1"),
        ({"first": 0}, "the key 'first' is 0, where the bins begin"),
        ({"bins_per_decade": 0}, "the key 'bins_per_decade' is 0"),
        ({"p99": "high"}, "the key 'p99' is not float"),
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
    with pytest.raises(ArtifactError, match="the key 'bytes' is -1"):
        read_report(path)
