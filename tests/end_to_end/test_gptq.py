"""GPTQ by its recipe, on a small trained model: bounds that plain rounding does not keep.

`make test` shows that its passes lose less than rounding (`tests/passes/quantize/propagate`), and
judges recipes of theirs on trained models (`test_kv_int4.py`, `test_main_job.py`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from optc.proof.reference.text import calibration_text, read_documents
from tests.end_to_end.test_main_job import ROOT, TEXT
from tests.support.cost.command import optc

MODEL = ROOT / "examples/models/pycode-draft"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"


@pytest.mark.long
def test_it_keeps_bounds_that_plain_rounding_does_not(tmp_path: Path) -> None:
    """With method=round the mean KL on this text is 0.0223 and the agreement 0.874."""
    text, output = tmp_path / "text.jsonl", tmp_path / "artifact"
    text.write_text("".join(TEXT.read_text().splitlines(keepends=True)[:12]))
    result = optc(
        *("compile", MODEL, "--recipe", "int4-fused", "-o", output),
        *(
            "--calibration",
            CALIBRATION,
            "--set",
            "propagate-errors.windows=32",
            "--eval-text",
            text,
        ),
        *("--gate", "kl_mean=0.016", "--gate", "top1_agreement=0.89"),
        *("--gate", "kl_p99=none", "--gate", "perplexity_ratio=none"),
    )
    assert not [one for one in result["warnings"] if "calibration text" in one]
    passed = {gate["name"]: gate["passed"] for gate in result["gates"]}
    assert passed["kl_mean"]
    assert passed["top1_agreement"]
    report = json.loads((output / "report.json").read_text())
    (quantized,) = (one for one in report["passes"] if one["name"] == "quantize-weights")
    assert "int4 groups of 32 asymmetric, integer, gptq" in quantized["details"]


@pytest.mark.long
def test_a_text_of_another_domain_is_called_out(tmp_path: Path) -> None:
    """Prose, for a model of code."""
    prose, output = tmp_path / "prose.txt", tmp_path / "artifact"
    prose.write_text("".join(read_documents(calibration_text())[:8]))
    result = optc(
        *("compile", MODEL, "--recipe", "int4-fused", "-o", output, "--no-gates"),
        *("--calibration", prose, "--set", "propagate-errors.windows=4"),
    )
    report = json.loads((output / "report.json").read_text())
    for warnings in (result["warnings"], report["warnings"]):
        assert any("prose.txt) is hardly of the model's domain" in one for one in warnings)
        assert any("the calibration text is short" in one for one in warnings)
    assert report["calibration"]["calibration"]["explained"] < 0.1
