"""A recipe that prunes and quantizes, on a small trained model.

`make test` shows that its pass loses less than magnitudes do, and that its zeros survive
(`tests/passes/prune/weights`); engines of pruned models are run in `test_pruned.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.test_main_job import ROOT, TEXT
from tests.support.cost.command import optc

MODEL = ROOT / "examples/models/pycode-draft"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"


@pytest.mark.long
def test_two_of_four_weights_go_at_a_loss_that_magnitudes_exceed(tmp_path: Path) -> None:
    """By magnitude the mean KL on this text is 0.76."""
    text, output = tmp_path / "text.jsonl", tmp_path / "artifact"
    text.write_text("".join(TEXT.read_text().splitlines(keepends=True)[:12]))
    result = optc(
        *("compile", MODEL, "--recipe", "prune-2to4-int8", "-o", output),
        *("--calibration", CALIBRATION, "--set", "prune-weights.windows=32"),
        *("--eval-text", text, "--gate", "kl_mean=0.2", "--gate", "top1_agreement=none"),
        *("--gate", "kl_p99=none", "--gate", "perplexity_ratio=none"),
    )
    gates = {gate["name"]: gate for gate in result["gates"]}
    assert gates["kl_mean"]["passed"]
    assert gates["kl_mean"]["value"] > 0.01, "it is compared with the dense model"
    report = json.loads((output / "report.json").read_text())
    passes = {one["name"]: one for one in report["passes"]}
    assert passes["prune-weights"]["facts"]["sparsity"] == 0.5
    assert set(passes["prune-weights"]["details"]) == {"2:4", "corrected"}
    assert "int8 per channel, zeros kept" in passes["quantize-weights"]["details"]
