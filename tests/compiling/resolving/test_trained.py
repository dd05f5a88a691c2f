"""Trained weights enter behind pruning, rounded ones before what rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.resolving.trained import (
    float_weights_place,
    rounded_weights_place,
    with_trained,
)
from optc.errors import InputError

FOLDER = Path("trained")


def names(recipe: str, *, rounded: bool) -> list[str]:
    whole = with_trained(load_recipe(recipe), FOLDER, "ab", rounded=rounded)
    return [one.name for one in whole.pipeline.passes]


def test_float_weights_come_right_behind_the_dense_form() -> None:
    assert names("int4-fused", rounded=False)[:3] == [
        "canonicalize",
        "trained-weights",
        "latent-kv",
    ]
    assert names("mixed-3", rounded=False)[:3] == [
        "canonicalize",
        "trained-weights",
        "latent-kv",
    ]


def test_rounded_weights_come_behind_the_choice_of_formats() -> None:
    assert names("mixed-3", rounded=True)[:7] == [
        *("canonicalize", "latent-kv", "rotate-kv", "rotate-activations", "allocate-bits"),
        *("trained-weights", "propagate-errors"),
    ]
    assert names("int4-fast", rounded=True)[4:6] == ["trained-weights", "fuse-qkv"]
    keys = names("kv-int4", rounded=True)
    assert keys.index("balance-keys") < keys.index("trained-weights")


def test_training_runs_up_to_the_passes_that_change_the_graph() -> None:
    passes = load_recipe("int2-fused").pipeline.passes
    assert float_weights_place(passes) == 1
    assert passes[rounded_weights_place(passes, behind_errors=True) - 1].name == "propagate-errors"
    assert float_weights_place(passes[1:]) == 0


def test_what_is_recorded_is_the_digest_and_it_enters_once() -> None:
    whole = with_trained(load_recipe("fp32"), FOLDER, "ab", rounded=False)
    assert "trained-weights{sha256=ab}" in whole.pipeline.spec()
    with pytest.raises(InputError, match="--trained: the recipe 'fp32' has trained weights"):
        with_trained(whole, FOLDER, "ab", rounded=False)
