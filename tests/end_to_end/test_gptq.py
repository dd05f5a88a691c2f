"""GPTQ by its recipe, on a small trained model: bounds that plain rounding does not keep."""

from __future__ import annotations

import json
from pathlib import Path

from tests.end_to_end.test_main_job import ROOT, TEXT, optc

MODEL = ROOT / "examples/models/pycode-draft"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"


def test_it_keeps_bounds_that_plain_rounding_does_not(tmp_path: Path) -> None:
    """With method=round the mean KL on this text is 0.0223 and the agreement 0.874."""
    text, output = tmp_path / "text.jsonl", tmp_path / "artifact"
    text.write_text("".join(TEXT.read_text().splitlines(keepends=True)[:12]))
    result = optc(
        *("compile", MODEL, "--recipe", "int4-gptq", "-o", output),
        *("--calibration", CALIBRATION, "--set", "calibrate.windows=8", "--eval-text", text),
        *("--gate", "kl_mean=0.016", "--gate", "top1_agreement=0.89"),
        *("--gate", "kl_p99=none", "--gate", "perplexity_ratio=none"),
    )
    passed = {gate["name"]: gate["passed"] for gate in result["gates"]}
    assert passed["kl_mean"]
    assert passed["top1_agreement"]
    report = json.loads((output / "report.json").read_text())
    (quantized,) = (one for one in report["passes"] if one["name"] == "quantize-weights")
    assert "int4 groups of 32 asymmetric, integer, gptq" in quantized["details"]


def test_without_a_text_it_takes_the_shipped_one_and_says_so(tmp_path: Path) -> None:
    result = optc(
        *("compile", MODEL, "--recipe", "int4-gptq", "-o", tmp_path / "a", "--no-gates"),
        *("--set", "propagate-errors.windows=8"),
    )
    assert any("calibrates with the text shipped with optc" in one for one in result["warnings"])
