"""The place of trained weights in a recipe's pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from optc.compiling.recipes.recipe import Recipe
from optc.errors import InputError
from optc.ir.pipeline import registry
from optc.ir.pipeline.base import Pass
from optc.ir.pipeline.phase import Phase

#: Phases that float weights are trained behind: their last pass leaves the student.
_BEFORE = (Phase.CANONICAL, Phase.STRUCTURE, Phase.SPARSITY)


def with_trained(recipe: Recipe, folder: Path, sha256: str, *, rounded: bool) -> Recipe:
    """The recipe with the weights that ``optc distill`` or ``optc qat`` left.

    Args:
        recipe: Validated.
        folder: What the command wrote.
        sha256: Of its files, in hex.
        rounded: Whether its weights are rounded.

    Raises:
        InputError: The recipe has trained weights already.
    """
    passes, trained = recipe.pipeline.passes, registry.added_by("--trained")
    if any(one.name == trained.name for one in passes):
        raise InputError(
            f"the recipe {recipe.name!r} has trained weights already", where="--trained"
        )
    place = rounded_weights_place(passes) if rounded else float_weights_place(passes)
    options = {"folder": str(folder), "sha256": sha256}
    added = trained.from_options(options)
    pipeline = replace(recipe.pipeline, passes=(*passes[:place], added, *passes[place:]))
    pipeline.validate()
    return replace(recipe, pipeline=pipeline)


def float_weights_place(passes: Sequence[Pass]) -> int:
    """Behind the last pass that removes weights or leads to the dense form."""
    found = [i for i, one in enumerate(passes) if one.phase in _BEFORE]
    return found[-1] + 1 if found else 0


def rounded_weights_place(passes: Sequence[Pass], *, behind_errors: bool = False) -> int:
    """Before what rounds, fuses or caches; with ``behind_errors`` behind what corrects errors of
    rounding, which leaves the graph of the dense form."""
    last = Phase.CORRECTION if behind_errors else Phase.FORMATS
    found = [i for i, one in enumerate(passes) if one.phase > last]
    return found[0] if found else len(passes)
