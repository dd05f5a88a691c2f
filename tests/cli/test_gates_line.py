"""The line about gates at the head of ``optc inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from optc.artifact.manifest import GateEntry, Manifest
from optc.cli.gates_line import gates_line
from tests.artifact.toy import toy_manifest

NAMES = ("kl_mean", "kl_p99", "top1_agreement", "perplexity_ratio")


def manifest(*gates: GateEntry) -> Manifest:
    free = GateEntry("decode_speedup", None, None)  # has no bound, and so no verdict
    return replace(toy_manifest(()), gates=(*gates, free))


def four(passed: bool | None, engine: str = "target", *, lowered: bool = False) -> list[GateEntry]:
    return [GateEntry(name, 1.0, passed, engine, lowered) for name in NAMES]


def verified(passed: bool | None, measured_on: str = "engine") -> dict[str, Any]:
    gate = {"engine": "target", "measured_on": measured_on, "passed": passed}
    return {"gates": [{**gate, "name": name} for name in NAMES]}


@pytest.mark.parametrize(
    ("gates", "line"),
    [
        ([], "measured, and none was judged"),
        (four(True), "passed: 4 of 4 on target"),
        (four(None), "open: 4 of 4 on target"),
        (
            [*four(None), *four(True, lowered=True)],
            "open: 4 of 4 on target (lowered ONNX passed)",
        ),
        (
            [*four(None), *four(True, lowered=True)[1:], *four(False, lowered=True)[:1]],
            "open: 4 of 4 on target (lowered ONNX FAILED)",
        ),
        (
            [*four(False)[:1], *four(True)[1:2], *four(None)[2:]],
            "FAILED: 1 of 4 on target, passed: 1 of 4 on target, open: 2 of 4 on target",
        ),
        (
            [*four(True, "tvm"), *four(None, "trt"), *four(True, "trt", lowered=True)],
            "passed: 4 of 4 on tvm; open: 4 of 4 on trt (lowered ONNX passed)",
        ),
    ],
)
def test_states(gates: list[GateEntry], line: str) -> None:
    assert gates_line(manifest(*gates), {}) == line


def test_gates_that_were_switched_off() -> None:
    off = replace(manifest(*four(None)), gated=False)
    assert gates_line(off, {}) == "switched off"


def test_verdicts_of_a_later_verification_count() -> None:
    opened = manifest(*four(None), *four(True, lowered=True))
    assert gates_line(opened, verified(True)) == "passed: 4 of 4 on target"
    assert gates_line(opened, verified(False)) == "FAILED: 4 of 4 on target"
    still_open = "open: 4 of 4 on target (lowered ONNX passed)"
    assert gates_line(opened, verified(True, "lowered-onnx")) == still_open
    assert gates_line(opened, verified(None, "none")) == still_open


def test_a_report_does_not_overrule_the_manifest(tmp_path: Path) -> None:
    assert gates_line(manifest(*four(False)), verified(True)) == "FAILED: 4 of 4 on target"
