"""A recipe's weights alone are the checkpoint's, rounded, under the checkpoint's names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np

from benchmarks.proof.numpy_llama import read_tensors
from benchmarks.quality_per_byte.evaluate import Evaluator
from benchmarks.quality_per_byte.points import count
from benchmarks.quality_per_byte.recipes import tvm_recipes
from benchmarks.quality_per_byte.weights_alone.ours import points, weights_alone

ROOT = Path(__file__).parents[4]
MODEL = ROOT / "examples/models/pycode-draft"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"


def test_rounded_weights_have_their_places_and_their_bytes() -> None:
    """The int4 recipe: 4 bits, 16 more a group of 32, 32 more a row; 6 bits for the table."""
    source = read_tensors(MODEL)
    weights, sizes = weights_alone(MODEL, "int4-fast", CALIBRATION)
    assert set(weights) == set(source)
    for name, array in source.items():
        assert weights[name].shape == array.shape
        if array.ndim == 1:
            np.testing.assert_array_equal(weights[name], array)
        else:
            lost = np.square(weights[name] - array).sum() / np.square(array).sum()
            assert 0 < lost < 0.02, name
    size = count(sizes, {name: array.shape for name, array in source.items()})
    body = [a for n, a in source.items() if a.ndim == 2 and n != "model.embed_tokens.weight"]
    expected = sum(a.size * 4.5 + len(a) * 32 for a in body) / sum(a.size for a in body)
    assert abs(size.bits_body - expected) < 1e-9


def test_a_recipe_that_cannot_be_made_is_told_with_its_reason() -> None:
    """Asked of the recipe before any work, so that the evaluator is not touched."""
    evaluator = cast("Evaluator", SimpleNamespace(model=MODEL))
    found, missing = points(evaluator, "int5-fused", CALIBRATION, CALIBRATION)
    assert found == []
    assert missing[0]["label"] == "int5-fused"
    assert "int5-fused" in missing[0]["reason"]


def test_the_default_recipes_are_those_for_tvm() -> None:
    found = tvm_recipes()
    assert {"int8-fused", "int4-fast", "bf16-fused"} <= set(found)
    assert not any(name.startswith(("trt-", "encoder-", "speech-")) for name in found)
