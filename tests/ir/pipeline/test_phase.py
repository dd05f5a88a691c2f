"""The rest of optc asks passes what they do: one of another name is treated like ours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from optc.compiling.ladder.members import is_general
from optc.compiling.recipes.recipe import Recipe, load_recipe
from optc.compiling.recipes.recipe_additions import (
    calibrates,
    trims,
    with_adapters,
    with_budget,
    with_calibration,
    with_hidden_states,
    with_structures_pruned,
    with_vocabulary,
)
from optc.compiling.resolving.trained import float_weights_place, rounded_weights_place
from optc.errors import InputError
from optc.ir.pipeline import registry
from optc.ir.pipeline.base import Pass
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.kv_cache.balance_keys import BalanceKeys
from optc.passes.prune.structured.prune_width import PruneWidth
from optc.passes.prune.vocabulary.vocab_trim import VocabTrim
from optc.passes.quantize.calibrate import Calibrate
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.rotate.rotate import Rotate


@dataclass(frozen=True)
class Observe(Calibrate):
    name: ClassVar[str] = "my-calibrate"


@dataclass(frozen=True)
class DropNeurons(PruneWidth):
    name: ClassVar[str] = "drop-neurons"


@dataclass(frozen=True)
class Spin(Rotate):
    name: ClassVar[str] = "spin"


@dataclass(frozen=True)
class Even(BalanceKeys):
    name: ClassVar[str] = "even-keys"


@dataclass(frozen=True)
class FewTokens(VocabTrim):
    name: ClassVar[str] = "few-tokens"


@dataclass(frozen=True)
class Codes(QuantizeWeights):
    name: ClassVar[str] = "my-codes"


def recipe_with(*added: Pass, name: str = "mixed-4") -> Recipe:
    """The recipe with passes behind ``canonicalize``; the order is not checked."""
    recipe = load_recipe(name)
    whole = recipe.pipeline.passes
    place = recipe.pipeline.behind(Phase.CANONICAL)
    passes = (*whole[:place], *added, *whole[place:])
    return replace(recipe, pipeline=replace(recipe.pipeline, passes=passes))


def names(recipe: Recipe) -> list[str]:
    return [one.name for one in recipe.pipeline.passes]


def test_one_that_reads_a_text_is_given_it(tmp_path: Path) -> None:
    recipe = recipe_with(Observe(), name="fp32")
    assert calibrates(recipe)
    assert not calibrates(load_recipe("fp32"))
    given = with_calibration(recipe, tmp_path / "text", tmp_path, "ab", "kept")
    (mine,) = (one for one in given.pipeline.passes if isinstance(one, Observe))
    assert (mine.text, mine.folder, mine.sha256, mine.cache) == (
        *(str(tmp_path / "text"), str(tmp_path)),
        *("ab", "kept"),
    )


def test_one_that_removes_tokens_is_told_which(tmp_path: Path) -> None:
    recipe = recipe_with(FewTokens(), name="fp32")
    assert trims(recipe)
    (mine,) = (
        one
        for one in with_vocabulary(recipe, tmp_path, "ab").pipeline.passes
        if isinstance(one, FewTokens)
    )
    assert (mine.folder, mine.sha256) == (str(tmp_path), "ab")
    assert not is_general(recipe)


def test_trained_weights_enter_behind_one_that_prunes_and_before_one_that_rounds() -> None:
    passes = recipe_with(DropNeurons(), name="fp32").pipeline.passes
    assert passes[float_weights_place(passes) - 1].name == "drop-neurons"
    whole = [*(one for one in passes if one.phase <= Phase.STRUCTURE), Codes()]
    assert whole[rounded_weights_place(whole)].name == "my-codes"
    assert not is_general(recipe_with(DropNeurons()))


def test_formats_are_chosen_behind_what_changes_the_basis() -> None:
    recipe = with_budget(recipe_with(Spin(), Even(), name="int4-fused"), "4bpw")
    found = names(recipe)
    assert found.index("allocate-bits") > max(found.index("spin"), found.index("even-keys"))
    pruned = with_budget(recipe_with(DropNeurons()), "4bpw,prune")
    assert names(pruned).index("prune-to-budget") == names(pruned).index("drop-neurons") + 1


def test_structures_go_behind_tokens() -> None:
    recipe = with_structures_pruned(recipe_with(FewTokens(), name="fp32"), {"width": 0.5})
    assert names(recipe).index("prune-width") == names(recipe).index("few-tokens") + 1


def test_what_adapters_and_hidden_states_cannot_follow_is_refused_by_its_name() -> None:
    with pytest.raises(InputError, match="scales projections") as caught:
        with_adapters(recipe_with(Even(), name="int8-fused"), "max=1")
    assert "without even-keys" in caught.value.hint
    with pytest.raises(InputError, match="pass spin of the recipe"):
        with_hidden_states(recipe_with(Spin(), name="int8-fused"))


def test_every_shipped_pass_says_what_it_is_for() -> None:
    groups = registry.pass_groups()
    for name, members in groups.items():
        for one in members:
            declared = any("phase" in base.__dict__ for base in one.__mro__ if base is not Pass)
            assert declared, one.name
            leads = name == "canonicalize" or one.name == "simplify"
            assert (one.phase is Phase.CANONICAL) == leads, one.name


def test_what_reads_a_text_has_the_options_for_it() -> None:
    for one in registry.passes().values():
        if one.has(Effect.READS_TEXT):
            assert {"text", "folder", "cache"} <= one.local_options(), one.name


def test_an_option_finds_the_pass_that_says_so() -> None:
    assert registry.added_by("--adapters").name == "adapters"
    options = [one.added_by for one in registry.passes().values() if one.added_by]
    assert len(options) == len(set(options)) > 5
