"""The recipes of drafts that are made of the target (``--draft self:…``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from optc.compiling.recipes.recipe import Recipe, load_recipe
from optc.compiling.recipes.recipe_additions import trims, with_structures_pruned
from optc.compiling.resolving.draft_spec import DraftSpec
from optc.compiling.resolving.engines import EngineTarget, kinds_of
from optc.compiling.resolving.kv_types import check_kv_type
from optc.compiling.resolving.preflight_nodes import check_options
from optc.compiling.resolving.recipe_options import calibrated, check_text
from optc.errors import InputError, UnsupportedError
from optc.system.options import CompileOptions


@dataclass(frozen=True)
class DraftCandidate:
    """A draft that can be made.

    Attributes:
        spec: What it is.
        recipe: By which it is compiled.
    """

    spec: DraftSpec
    recipe: Recipe


def draft_candidates(
    specs: Sequence[DraftSpec],
    own: Recipe,
    asked: CompileOptions,
    source: Path,
    engines: Sequence[EngineTarget],
) -> tuple[DraftCandidate, ...]:
    """The drafts that can be made of the target, for engines that take them.

    Args:
        specs: Of which one is wanted.
        own: The target's recipe, for drafts that keep its bits.
        asked: What the user said; of it the text to calibrate with.
        source: The target's folder.
        engines: The target's, for each of which there is a draft.

    Raises:
        UnsupportedError: An engine cannot take a recipe's weights, or its keys and values.
    """
    kinds = kinds_of(engines)
    found = []
    for spec in specs:
        recipe = own if spec.bits is None else load_recipe(f"int{spec.bits}-fused")
        recipe = with_structures_pruned(recipe, {"depth": spec.depth, "width": spec.width})
        recipe = calibrated(recipe, asked, source, [])
        if spec.bits is not None:
            recipe = recipe.for_kinds(kinds)
            try:
                check_kv_type(recipe, engines)
                check_options(recipe, engines)
            except UnsupportedError as error:
                raise UnsupportedError(
                    f"{error.where}: {error.message}",
                    where=f"--draft {spec.text}",
                    hint="leave it or that engine out",
                ) from error
        found.append(DraftCandidate(spec, replace(recipe, backend=engines[0].backend.name)))
    return tuple(found)


def check_draft_vocabulary(folder: Path | None, recipe: Recipe) -> None:
    """Check that a draft of a folder of its own can have the target's tokens.

    Args:
        folder: The draft's; None where there is no such draft.
        recipe: The target's.

    Raises:
        InputError: The target loses tokens that the draft keeps.
    """
    if folder is not None and trims(recipe):
        raise InputError(
            f"the recipe {recipe.name!r} trims the vocabulary, and a draft of a folder of its "
            "own has the whole one",
            where="--draft",
            hint="--draft self:bits=2 makes one of the target; or keep all tokens",
        )


def check_distilled(specs: Sequence[DraftSpec], asked: CompileOptions, recipe: Recipe) -> None:
    """Check what the training of a draft needs, before the long stages.

    Args:
        specs: Of which one is wanted.
        asked: What the user said.
        recipe: The target's.

    Raises:
        InputError: A text is missing or for nothing, or draft and target would not have one
            vocabulary while it is trained.
    """
    trained = [one for one in specs if one.distill is not None]
    if asked.draft_text and not trained:
        raise InputError(
            "no draft is trained",
            where="--draft-text",
            hint="--draft self:depth=0.5,bits=4,distill=10m trains one",
        )
    for text in asked.draft_text:
        check_text(Path(text), "--draft-text")
    if trained and trims(recipe):
        raise InputError(
            f"the recipe {recipe.name!r} trims the vocabulary, and a draft is trained with the "
            "whole one",
            where=f"--draft {trained[0].text}",
            hint="leave distill out, or take a recipe that keeps all tokens",
        )
