"""The recipe of a layer beside a target of each shipped recipe, run on a tiny layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from optc.compiling.drafts.eagle import layer_recipe
from optc.compiling.drafts.eagle_layer import make_draft_layer
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.recipes.recipe_additions import with_hidden_states
from optc.errors import InputError
from optc.ir.forms.ragged import RaggedStep
from optc.ir.functions import operand
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.pipeline.pipeline import Pipeline
from tests.support.drafts.heads import write_layer
from tests.support.models import Dense, dense_model

SHAPE = Dense(hidden=64, heads=2, kv_heads=1, head_dim=32, inner=64, windows=(0, 0), tied=True)
RECIPES = (
    *("fp32", "bf16-fused", "int8-fused", "int8-a16", "int6-fused"),
    *("int4-fused", "int4-fast", "int2-fused"),
    *("kv-int4", "mixed-4", "prune-2to4-int8", "prune-depth-int8", "vocab-trim-int4"),
)


def behind_dense(pipeline: Pipeline) -> Pipeline:
    """The passes that a model in dense form has not seen."""
    return replace(pipeline, passes=pipeline.passes[pipeline.behind(Phase.CANONICAL) :])


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_one_for_a_layer_that_reads_no_text(tmp_path: Path, name: str) -> None:
    model = dense_model(SHAPE)
    write_layer(tmp_path, model)
    make_draft_layer(model, tmp_path)
    recipe = load_recipe(name)
    mine = layer_recipe(recipe, model).pipeline
    assert not mine.has(Effect.READS_TEXT | Effect.REMOVES_TOKENS)
    behind_dense(mine).run(model, [])
    form = RaggedStep.of(model)
    assert form.features
    assert form.hidden
    (kv,) = (one for one in recipe.pipeline.passes if one.name == "kv-cache")
    latest = {"int8"} if kv.stated_options().get("recent") else set()
    assert {layer.dtype for layer in form.kv.layers} == latest | {
        kv.stated_options().get("dtype", "float32")
    }
    bits = {
        str(weight.name).startswith("eagle."): node.attributes.get_int("bits", 0)
        for node in model.graph
        if node.op_type == "QuantizedMatMul" and (weight := operand(node, "weight")) is not None
    }
    if any(one.name == "quantize-weights" for one in mine.passes):
        head = {"int8": 8, "prun": 8}.get(name[:4], 8 if name.endswith("int8") else 6)
        assert bits == {True: 4, False: head}


def test_a_stored_recipe_with_the_pass_is_taken_as_it_is() -> None:
    once = with_hidden_states(load_recipe("int8-fused"))
    assert with_hidden_states(once) == once


def test_a_recipe_without_pages_is_refused() -> None:
    recipe = load_recipe("fp32")
    dense = replace(recipe.pipeline, passes=recipe.pipeline.passes[:1])
    with pytest.raises(InputError) as caught:
        with_hidden_states(replace(recipe, pipeline=dense))
    assert (
        str(caught.value) == "--eagle: the recipe 'fp32' has no pass that leads to a paged KV cache"
    )
