"""Formats within a budget, from the command line to what the artifact says of them."""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end.test_main_job import ROOT, optc

MODEL = ROOT / "examples/models/pycode-draft"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"
#: Few windows: what is looked at does not depend on how good the choice is.
FEW = (
    *("--set", "allocate-bits.windows=2", "--set", "allocate-bits.measured_windows=1"),
    *("--set", "allocate-bits.formats=[4g32,6g64,8]", "--set", "propagate-errors.windows=2"),
)


def test_an_artifact_keeps_to_its_budget_and_says_how(tmp_path: Path) -> None:
    output = tmp_path / "artifact"
    optc(
        *(
            "compile",
            MODEL,
            "--recipe",
            "mixed-4",
            "--budget",
            "5.5bpw",
            "-o",
            output,
            "--no-gates",
        ),
        *("--calibration", CALIBRATION, *FEW),
    )
    found = optc("inspect", output)
    passes = {one["name"]: one for one in found["report"]["passes"]}
    facts = passes["allocate-bits"]["facts"]
    assert facts["budget"] == "5.5bpw"
    assert 5.3 < facts["bits_per_weight"] <= 5.5
    assert abs(passes["quantize-weights"]["facts"]["bits_per_weight"] - 5.5) < 0.2
    formats = {row["tensors"]: row["format"] for row in facts["tensors"]}
    assert len(set(formats.values())) > 1
    stated = found["manifest"]["pipeline"]
    assert all(f"down_proj.weight={formats[n]}" in stated for n in formats if "down_proj" in n)
