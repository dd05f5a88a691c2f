"""All passes of a recipe in turn: the fused model is the dense one, in ragged steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.recipes.recipe_additions import calibrates, with_calibration
from optc.ir.forms.ragged import RaggedStep
from optc.ir.pipeline.pipeline import Pipeline
from optc.proof.reference.text import digest_text
from tests.passes.prune.structured.on_letters import pruning
from tests.support.families import FAMILIES, FUSED, model_after
from tests.support.ir_text import Array
from tests.support.letters import letters_folder
from tests.support.models import Dense, dense_model
from tests.support.outliers import TOKENS, decibels, planted
from tests.support.pipelines import pipeline_of
from tests.support.ragged import RaggedDriver, run_dense

SHAPES = {
    "llama": FAMILIES["llama"],
    "gemma": replace(FAMILIES["gemma2"], qk_norm=True),
    "phi": FAMILIES["phi3"],
    "no positions": replace(FAMILIES["no positions"], activation="gelu"),
}


def ragged_logits(shape: Dense, spec: str, tokens: list[int]) -> tuple[Array, set[str]]:
    """Logits of all tokens, in two chunks, and the operators that are left."""
    model = model_after(spec, shape)
    driver = RaggedDriver(model)
    logits = np.concatenate([driver.step({7: tokens[:17]}), driver.step({7: tokens[17:]})])
    return logits, {node.op_type for node in model.graph}


def assert_near(logits: Array, want: Array, *, quantized: bool) -> None:
    """Equal but for rounding; of quantized layers as a whole, since one logit of thousands may be
    far off in any case."""
    if quantized:
        assert np.linalg.norm(logits - want) < 0.04 * np.linalg.norm(want)
    else:
        np.testing.assert_allclose(logits, want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("family", SHAPES)
def test_fusions_keep_the_meaning(family: str) -> None:
    shape = SHAPES[family]
    tokens = np.random.default_rng(1).integers(0, shape.vocab, 40).tolist()
    logits, left = ragged_logits(shape, FUSED, tokens)
    want = run_dense(dense_model(shape), tokens)
    np.testing.assert_allclose(logits, want, rtol=1e-4, atol=2e-5)
    assert {"RotaryPagedAttention", "AddRMSNorm", "GatedActivation"} <= left
    assert not left & {"PagedAttention", "Split", "HeadRMSNorm", "RotaryEmbedding", "Sigmoid"}


#: What the fusions leave of families that lack what some of them look for.
OTHERS = {
    "olmo2": {"RMSNormalization", "GatedActivation"},
    "stablelm": {"LayerNormalization", "GatedActivation"},
    "starcoder2": {"LayerNormalization", "Gelu"},
}


@pytest.mark.parametrize("family", OTHERS)
@pytest.mark.parametrize("rest", ["", ",quantize-weights,fuse-norm-quantize", ",cast-weights"])
def test_families_without_what_a_fusion_looks_for(family: str, rest: str) -> None:
    shape = FAMILIES[family]
    tokens = np.random.default_rng(1).integers(0, shape.vocab, 40).tolist()
    logits, left = ragged_logits(shape, f"{FUSED}{rest}", tokens)
    want = run_dense(dense_model(shape), tokens)
    assert_near(logits, want, quantized=bool(rest))
    assert "RotaryPagedAttention" in left
    if not rest:
        assert OTHERS[family] <= left
        assert "AddRMSNorm" not in left
    assert ("MatMul" in left) == (not rest), "every layer is quantized all the same"


@pytest.mark.parametrize("options", ["", "{bits=4,group_size=32,symmetric=false}"])
def test_fusing_the_quantization_keeps_the_values(options: str) -> None:
    shape = SHAPES["gemma"]
    tokens = list(range(30))
    plain, _ = ragged_logits(shape, f"{FUSED},quantize-weights{options}", tokens)
    fused, left = ragged_logits(
        shape, f"{FUSED},quantize-weights{options},fuse-norm-quantize", tokens
    )
    np.testing.assert_allclose(fused, plain, rtol=1e-3, atol=1e-3)
    assert {"AddRMSNormQuantize", "RMSNormQuantize", "GatedActivationQuantize"} <= left
    assert "QuantizedGather" in left


def test_bfloat16_is_near_float32() -> None:
    shape = FAMILIES["llama"]
    tokens = list(range(30))
    logits, left = ragged_logits(shape, f"{FUSED},cast-weights", tokens)
    want = run_dense(dense_model(shape), tokens)
    assert 0 < np.abs(logits - want).max() < 0.05 * np.abs(want).max()
    assert "MatMul" not in left


PRUNING = {
    "prune-depth": {"units": "mlp", "target": "0.7x"},
    "prune-heads": {"target": "0.9x"},
    "prune-width": {"multiple": 8},
}


@pytest.mark.parametrize("rest", ["", ",quantize-weights,fuse-norm-quantize"])
@pytest.mark.parametrize("family", ["gemma", "phi"])
def test_pruned_models_step_as_they_are(family: str, rest: str, tmp_path: Path) -> None:
    """Layers of different widths, with different numbers of KV heads, or without an MLP."""
    shape, folder = SHAPES[family], letters_folder(tmp_path)
    shape = replace(shape, windows=(*shape.windows, 0)[:3], vocab=61)
    model = dense_model(shape)
    Pipeline(tuple(pruning(folder, name, **one) for name, one in PRUNING.items())).run(model)
    tokens = np.random.default_rng(1).integers(0, shape.vocab, 40).tolist()
    want = run_dense(model, tokens)
    Pipeline(pipeline_of(f"{FUSED}{rest}").passes).run(model)
    assert len({layer.kv_heads for layer in RaggedStep.of(model).kv.layers}) == 2
    driver = RaggedDriver(model)
    logits = np.concatenate([driver.step({7: tokens[:17]}), driver.step({7: tokens[17:]})])
    assert_near(logits, want, quantized=bool(rest))
    left = {node.op_type for node in model.graph}
    assert {"RotaryPagedAttention", "GatedActivationQuantize" if rest else "AddRMSNorm"} <= left


def test_int8_smooth_undoes_the_outliers_that_int8_fused_suffers_from(tmp_path: Path) -> None:
    folder, found = letters_folder(tmp_path), {}
    for name in ("int8-fused", "int8-smooth"):
        recipe = load_recipe(name)
        if calibrates(recipe):
            text = folder / "text.txt"
            recipe = with_calibration(recipe, text, folder, digest_text(text))
        model = planted()
        rest = [one for one in recipe.pipeline.passes if one.name != "canonicalize"]
        Pipeline(tuple(rest)).run(model)
        found[name] = decibels(RaggedDriver(model).step({1: TOKENS}))
    assert found["int8-smooth"] > found["int8-fused"] + 3
