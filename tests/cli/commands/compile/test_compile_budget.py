"""Formats within a budget, from the command line to what ``optc inspect`` says of the artifact."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.proof.roofline import this_machine
from optc.proof.roofline.ceilings import Ceiling
from optc.system.options import CompileOptions
from tests.cli.conftest import Optc, nothing_left

ROOT = Path(__file__).resolve().parents[4]
#: Few formats and windows: what is looked at does not depend on how good the choice is.
FEW = (
    *("--recipe", "mixed-4", "--calibration", ROOT / "README.md"),
    *("--set", "allocate-bits.formats=[3g32,4g32,8]", "--set", "allocate-bits.window_tokens=32"),
    *("--set", "allocate-bits.windows=4", "--set", "allocate-bits.measured_windows=1"),
    *("--set", "propagate-errors.windows=2", "--set", "propagate-errors.window_tokens=32"),
    *("--set", "quantize-weights.group_size=32"),
)


def test_an_artifact_keeps_to_its_budget_and_says_how(
    compile_tiny: Optc, optc: Optc, tmp_path: Path
) -> None:
    assert compile_tiny(*FEW, "--budget", "6.5bpw").code == 0
    found = optc("inspect", tmp_path / "out/a", "--json").json
    passes = {one["name"]: one for one in found["report"]["passes"]}
    facts = passes["allocate-bits"]["facts"]
    assert facts["budget"] == "6.5bpw"
    assert 5 < facts["bits_per_weight"] <= 6.5
    quantized = passes["quantize-weights"]["facts"]["bits_per_weight"]
    assert quantized == pytest.approx(facts["bits_per_weight"])
    formats = {row["tensors"]: row["format"] for row in facts["tensors"]}
    (down,) = (name for name in formats if name.endswith("down_proj.weight"))
    assert f"{down}={formats[down]}" in found["manifest"]["pipeline"]
    tables = optc("inspect", tmp_path / "out/a").out
    assert "formats within 6.5bpw" in tables
    assert formats[down] in tables


def test_a_budget_below_the_smallest_formats_is_one_clear_error(
    compile_tiny: Optc, tmp_path: Path
) -> None:
    outcome = compile_tiny(*FEW, "--budget", "1KB")
    assert outcome.code == 2
    last = outcome.err.splitlines()[-1]
    assert last.startswith(
        "error: pass allocate-bits: the budget 1KB cannot be met: the smallest formats reach 0.0"
    )
    assert nothing_left(tmp_path)


def test_a_speed_is_measured_once_and_recorded(
    compile_tiny: Optc, optc: Optc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Meter:
        def ceilings(self) -> dict[str, Ceiling]:
            return {"read": Ceiling(2e9, 1e9)}

    monkeypatch.setattr(this_machine, "measure_machine", lambda where: Meter())
    assert compile_tiny(*FEW, "--budget", "10tok/s").code == 0
    recipe = optc("inspect", tmp_path / "out/a", "--json").json["manifest"]["recipe"]
    (one,) = (p for p in recipe["pipeline"] if p["name"] == "allocate-bits")
    assert one["options"]["budget"] == "10tok/s@2.00GB/s"


def test_help_says_how_budgets_are_written(optc: Optc) -> None:
    assert "3.5bpw|6.5MB|40tok/s" in optc("compile", "--help").out
    assert CompileOptions(budget="3.5bpw").budget == "3.5bpw"


def test_a_budget_may_prune_too(compile_tiny: Optc, optc: Optc, tmp_path: Path) -> None:
    """What bits alone cannot meet; the manifest has what stays."""
    recipe, text = tmp_path / "mine.yaml", "windows: 4, window_tokens: 32, measured_windows: 1"
    quantize = "{bits: 4, group_size: 32, symmetric: false, group_scales: int, head_bits: 4}"
    formats = f"allocate-bits: {{formats: [3g32, 4g32], {text}}}"
    prune = f"prune-to-budget: {{multiple: 32, shares: [0.5], {text}}}"
    recipe.write_text(
        f"name: m\npipeline: [canonicalize, {{{prune}}}, {{{formats}}}, "
        f"kv-cache, {{quantize-weights: {quantize}}}]\n"
    )
    given = ("--recipe", recipe, "--calibration", ROOT / "README.md")
    outcome = compile_tiny(*given, "--budget", "1bpw,prune")
    assert outcome.code == 2
    assert "the fewest neurons in the smallest formats reach" in outcome.err.splitlines()[-1]
    assert nothing_left(tmp_path)
    assert compile_tiny(*given, "--budget", "6bpw,prune").code == 0
    found = optc("inspect", tmp_path / "out/a", "--json").json
    assert "prune-to-budget{" in found["manifest"]["pipeline"]
    assert "left=[" in found["manifest"]["pipeline"]
    facts = next(p for p in found["report"]["passes"] if p["name"] == "prune-to-budget")["facts"]
    assert facts["budget"] == "6bpw"
    assert len(facts["structures"][0]["choices"]) == 2
