"""Speeds that a report has of an artifact's engines, for choosing among them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from optc import registry
from optc.artifact.measured import measured_speeds
from optc.artifact.tasks.task import SPEED
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import Target, parse_target
from tests.artifact.toy import toy_engine, write_toy
from tests.support.stub import StubBackend

V3 = parse_target("x86-64-v3")
HERE = Machine(frozenset(V3.features))
FACTS: dict[str, Any] = {"features": sorted(V3.features), "sm": []}
SPEEDS = TEXT_GENERATION.of(SPEED)
A, B = toy_engine("a", V3), toy_engine("b", V3)


def gates(engine: str, prefill: Any, decode: Any, measured_on: str = "engine") -> list[Any]:
    speeds = {"prefill_speedup": prefill, "decode_speedup": decode}
    return [
        {
            "engine": engine,
            "name": name,
            "value": value,
            "bound": None,
            "passed": None,
            "measured_on": measured_on,
        }
        for name, value in speeds.items()
    ]


def test_the_geometric_mean_of_prefill_and_decode() -> None:
    report = {"machine": FACTS, "gates": [*gates("a", 2, 8.0), *gates("b", 1.0, 9.0)]}
    assert measured_speeds(report, [A, B], HERE, SPEEDS) == {"a": 4.0, "b": 3.0}


def test_other_features_than_this_machine_has_do_not_count() -> None:
    report = {"machine": FACTS, "gates": gates("a", 2, 8.0)}
    other = Machine(frozenset((*V3.features, "avx512f")))
    assert measured_speeds(report, [A], other, SPEEDS) == {}


def test_engines_on_a_device_were_measured_on_such_a_device() -> None:
    gpu = structs.replace(A, target=Target("cuda:sm_80", "cuda", (), "sm_80"))
    report = {"machine": {**FACTS, "sm": [80]}, "gates": gates("a", 2, 8.0)}
    assert measured_speeds(report, [gpu], replace(HERE, sm=(80,)), SPEEDS) == {"a": 4.0}
    assert measured_speeds(report, [gpu], replace(HERE, sm=(89,)), SPEEDS) == {}
    older = {**report, "machine": {"features": FACTS["features"]}}
    assert measured_speeds(older, [gpu], replace(HERE, sm=(80,)), SPEEDS) == {}


def test_what_was_verified_later_was_measured_there() -> None:
    elsewhere = {"features": ["avx2"], "sm": []}
    report = {
        "machine": FACTS,
        "gates": [*gates("a", 2, 8.0), *gates("b", 1.0, 9.0)],
        "verified": [
            {"engines": ["a", "b"], "machine": elsewhere},
            {"engines": ["b"], "machine": FACTS},
        ],
    }
    assert measured_speeds(report, [A, B], HERE, SPEEDS) == {"b": 3.0}
    assert measured_speeds(report, [A, B], Machine(frozenset(["avx2"])), SPEEDS) == {"a": 4.0}


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"machine": FACTS},
        {"machine": FACTS, "gates": gates("a", 2, 8.0, "lowered-onnx")},
        {"machine": FACTS, "gates": gates("a", 2, 8.0)[:1]},
        {"machine": FACTS, "gates": gates("a", None, 8.0)},
        {"machine": FACTS, "gates": gates("a", True, 8.0)},
        {"machine": FACTS, "gates": gates("a", 0, 8.0)},
        {"machine": FACTS, "gates": gates("a", float("nan"), 8.0)},
        {"machine": FACTS, "gates": gates("a", float("inf"), 8.0)},
        {"machine": FACTS, "gates": gates("a", "2", 8.0)},
        {"machine": FACTS, "gates": {"a": 2}},
        {"machine": FACTS, "gates": [None, 3]},
        {"machine": [], "gates": gates("a", 2, 8.0)},
        {"machine": {"features": 7}, "gates": gates("a", 2, 8.0)},
        {"machine": FACTS, "gates": gates("a", 2, 8.0), "verified": [{"engines": ["a"]}]},
    ],
)
def test_what_cannot_be_used_is_left_out(report: dict[str, Any]) -> None:
    assert measured_speeds(report, [A], HERE, SPEEDS) == {}


def test_a_report_that_is_gone_or_damaged_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "backend", lambda name: StubBackend(name))
    artifact = write_toy(tmp_path / "toy", toy_engine("target", V3), toy_engine("other", V3))
    report = artifact.path / "report.json"
    measured = [*gates("target", 1, 1), *gates("other", 2, 2)]
    for value, chosen in ((measured, "other"), ([], "target")):
        report.write_text(json.dumps({"machine": FACTS, "gates": value}))
        assert artifact.choose(machine=HERE).entry.name == chosen
    for damaged in (b"", b"\xff{", b"[]", b"{"):
        report.write_bytes(damaged)
        assert artifact.measured_speeds(HERE) == {}
        assert artifact.choose(machine=HERE).entry.name == "target"
    report.unlink()
    assert artifact.choose(machine=HERE).entry.name == "target"


def test_where_there_is_one_engine_its_speed_is_not_looked_up(tmp_path: Path) -> None:
    artifact = write_toy(tmp_path / "toy", toy_engine("target", V3))
    report = {"machine": FACTS, "gates": gates("target", 2, 2)}
    (artifact.path / "report.json").write_text(json.dumps(report))
    assert artifact.measured_speeds(HERE) == {}


def test_a_task_without_gates_of_speed_has_no_speeds() -> None:
    assert measured_speeds({"gates": gates("a", 8.0, 2.0)}, [A], HERE, ()) == {}
