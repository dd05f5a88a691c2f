"""Where trained weights enter a recipe's pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from optc.errors import InputError
from optc.pipeline import registry
from optc.pipeline.base import Pass
from optc.recipe import Recipe

#: The pass that takes them.
TRAINED = "trained-weights"
#: How names of passes begin that remove weights: float ones enter behind the last of them.
_PRUNING = ("prune-", "trim-")
#: What rounds or casts weights: rounded ones enter before it.
_ROUNDING = ("propagate-errors", "quantize-weights", "quantize-static", "cast-weights")


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
    passes = recipe.pipeline.passes
    if any(one.name == TRAINED for one in passes):
        raise InputError(
            f"the recipe {recipe.name!r} has trained weights already", where="--trained"
        )
    place = rounded_weights_place(passes) if rounded else float_weights_place(passes)
    options = {"folder": str(folder), "sha256": sha256}
    added = registry.passes()[TRAINED].from_options(options)
    pipeline = replace(recipe.pipeline, passes=(*passes[:place], added, *passes[place:]))
    pipeline.validate()
    return replace(recipe, pipeline=pipeline)


def float_weights_place(passes: Sequence[Pass]) -> int:
    """Behind the last pass that removes weights or leads to the dense form."""
    leading = {one.name for one in registry.pass_groups()["canonicalize"]}
    found = [
        i for i, one in enumerate(passes) if one.name in leading or one.name.startswith(_PRUNING)
    ]
    return found[-1] + 1 if found else 0


def rounded_weights_place(passes: Sequence[Pass], *, behind_errors: bool = False) -> int:
    """Before what rounds, fuses or caches; with ``behind_errors`` behind ``propagate-errors``,
    which leaves the graph of the dense form."""
    groups = registry.pass_groups()
    ends = {one.name for group in ("fuse", "kv_cache") for one in groups.get(group, ())}
    ends |= set(_ROUNDING) - ({"propagate-errors"} if behind_errors else set())
    ends -= {"balance-keys"}  # of the group kv_cache, on the dense form
    found = [i for i, one in enumerate(passes) if one.name in ends]
    return found[0] if found else len(passes)
