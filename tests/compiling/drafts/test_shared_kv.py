"""Which drafts made of the target say that they can use its keys and values."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from optc.compiling.building.built_engine import BuiltEngine
from optc.compiling.drafts.shared_kv import means_the_same, sharing
from optc.compiling.recipes.recipe import Recipe, load_recipe
from optc.ir.pipeline import registry
from optc.ir.pipeline.phase import Effect
from optc.runtime.executable.executable import LayerKV, StepInterface
from tests.artifact.toy import toy_spec
from tests.compiling.drafts.test_predicted_gain import StubBackend, built

MOVING = {
    *("smooth", "rotate", "balance-keys", "trained-weights"),
    *("prune-heads", "prune-depth", "prune-to-budget"),
}


def test_passes_that_move_keys_and_values() -> None:
    assert {name for name, one in registry.passes().items() if one.has(Effect.MOVES_KV)} == MOVING


@pytest.mark.parametrize(
    ("target", "draft", "same"),
    [
        ("int8-fused", "int2-fused", True),
        ("mixed-4", "int2-fused", True),
        ("int8-gptq", "int3-fused", True),
        ("prune-width-int8", "prune-width-int8", True),
        ("prune-width-int8", "int3-fused", False),
        ("int8-smooth", "int2-fused", False),
        ("kv-int4", "int2-fused", False),
        ("int8-fused", "prune-depth-int8", False),
    ],
)
def test_recipes_whose_keys_and_values_mean_the_same(target: str, draft: str, same: bool) -> None:
    recipes: tuple[Recipe, Recipe] = (load_recipe(target), load_recipe(draft))
    assert means_the_same(*recipes) is same


def built_with(spec: StepInterface) -> BuiltEngine:
    one = built(StubBackend(), "engine", 1)
    return replace(
        one, entry=structs.replace(one.entry, interface=spec), build=replace(one.build, spec=spec)
    )


def test_engines_say_so_where_the_pools_fit() -> None:
    spec = toy_spec()
    first, *_ = spec.layers
    other = structs.replace(spec, layers=(LayerKV(0, 7, 8, 8, "int8"), *spec.layers[1:]))
    assert first != other.layers[0]
    targets = [built_with(spec), built_with(spec)]
    fits, fits_not = sharing([built_with(spec), built_with(other)], targets)
    assert fits.entry.spec == fits.build.spec == structs.replace(spec, shared_kv=(0, 1))
    assert fits_not.entry.spec == fits_not.build.spec == other
