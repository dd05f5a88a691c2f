"""Pairs of formats by bits and by quality."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import comparison, conversion, measuring, variants


def _row(peer: str, name: str, rates: list[float], **more: Any) -> dict[str, Any]:
    median = sorted(rates)[len(rates) // 2]
    columns = dict.fromkeys(comparison.RATES, median)
    turns = dict.fromkeys(comparison.RATES, rates)
    return {"peer": peer, "format": name, "turns": turns, **columns, **more}


def _point(who: str, label: str, kl: float, numerics: str = "weights") -> dict[str, Any]:
    return {"who": who, "label": label, "numerics": numerics, "figures": {"kl_mean": kl}}


def test_only_peers_of_no_worse_a_kl_count() -> None:
    rows = [
        _row("optc", "int3", [30.0, 33.0, 36.0], kl=0.015),
        _row("fast", "poor", [90.0, 90.0, 90.0], kl=0.016),
        _row("slow", "good", [20.0, 22.0, 18.0], kl=0.015),
        _row("slower", "better", [10.0, 10.0, 10.0], kl=0.001),
        _row("fast", "unknown", [90.0, 90.0, 90.0]),
    ]
    (found,) = comparison.at_equal_quality(rows)
    assert found["optc"] == "int3"
    assert found["decode 1"] == "1.50 (slow good)"  # of 1.5, 1.5 and 2.0


def test_a_row_without_peers_says_so() -> None:
    (found,) = comparison.at_equal_quality([_row("optc", "int8", [1.0], kl=0.0)])
    assert found["decode 1"] == "-"


def test_the_best_quantizer_of_a_format_counts_and_no_other_format(tmp_path: Path) -> None:
    results = tmp_path / "points.json"
    points = [
        _point("openvino", "int4 asym g32", 0.011),
        _point("openvino", "int4 asym g32 GPTQ", 0.005),
        _point("openvino", "int4 asym g32x", 0.001),
        _point("optc", "int3-fused", 0.0153, "engine"),
        _point("optc", "int3-fused", 0.0146),
    ]
    results.write_text(json.dumps({"points": points}))
    formats = {
        ("openvino-genai", "int4-g32"): "int4 asym g32",
        ("optc", "int3-fused"): "int3-fused",
        ("optc", "other"): "other",
    }
    found = comparison.divergences(results, formats)
    assert found == {"openvino-genai int4-g32": 0.005, "optc int3-fused": 0.0146}


@pytest.mark.parametrize("name", [v.format for v in variants.VARIANTS if v.rounded])
def test_a_rounding_recipe_has_the_weights_of_its_recipe(name: str, tmp_path: Path) -> None:
    from optc.compiling.recipes.recipe import load_recipe

    file = conversion.rounding(name, tmp_path / "model")
    rounding, calibrated = (load_recipe(r).pipeline.passes for r in (file, name))
    passes = [type(p).__name__ for p in rounding]
    assert passes == [n for p in calibrated if (n := type(p).__name__) != "PropagateErrors"]


def test_a_run_of_decode_alone_has_that_column_alone() -> None:
    plan = measuring.Plan(prompt=8, context=2, new=4, batches=(1,), prefill=False)
    (column,) = plan.columns([[1, 2, 3]])
    assert (column.name, column.arguments["prompts"]) == ("decode 1", [[1, 2]])
    row = {"peer": "optc", "format": "int8", "bits": 8, "kl": 0.0, "decode 1": 1.0}
    (found,) = comparison.at_equal_quality([row])
    assert found == {"optc": "int8", "kl": 0.0, "decode 1": "-"}


def test_of_whole_engines_the_kl_is_that_of_the_engine_under_its_own_name(tmp_path: Path) -> None:
    results = tmp_path / "engines.json"
    points = [
        _point("openvino-genai", "int4-g32", 0.02, "engine"),
        _point("llama.cpp", "as given", 0.001, "given grid"),
        _point("optc", "int8-fused", 0.004, "engine"),
    ]
    results.write_text(json.dumps({"reference": "float32", "points": points}))
    found = comparison.divergences(results, {("openvino-genai", "int4-g32"): "int4 asym g32"})
    assert found == {"openvino-genai int4-g32": 0.02, "optc int8-fused": 0.004}
