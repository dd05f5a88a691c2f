"""Passes that options of a compile add to its recipe."""

from __future__ import annotations

from pathlib import Path

from optc import registry
from optc.errors import InputError
from optc.pipeline.pipeline import Pipeline
from optc.recipe import Recipe, Scalar, Step

#: The pass that runs the model over a text.
CALIBRATE = "calibrate"


def with_adapters(recipe: Recipe, text: str) -> Recipe:
    """The recipe with room for LoRA adapters, its pass ``adapters`` last.

    Args:
        recipe: Validated.
        text: Options of the pass, ``max=8,rank=16``.

    Raises:
        InputError: Not options of the pass, or the recipe runs it already.
    """
    options: dict[str, Scalar] = {}
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        if not equals:
            raise InputError(f"{item!r} is not option=value", where="--adapters")
        options[name.strip()] = value.strip()
    if any(step.name == "adapters" for step in recipe.pipeline):
        raise InputError(
            f"the recipe {recipe.name!r} runs the pass adapters already",
            where="--adapters",
            hint="override it with --set adapters.max=8",
        )
    step = Step(name="adapters", options=options)
    changed = recipe.model_copy(update={"pipeline": (*recipe.pipeline, step)})
    Pipeline.parse(changed.spec(), registry)
    return changed


def with_medusa(recipe: Recipe, folder: Path, sha256: str) -> Recipe:
    """The recipe with Medusa heads: the pass `medusa-heads` behind `kv-cache`, which makes trees.

    Args:
        recipe: Validated.
        folder: The heads.
        sha256: Of their files, in hex.

    Raises:
        InputError: The recipe makes no ragged step, or adds heads already, or the folder's name
            cannot stand in a pipeline.
    """
    if any(char in str(folder) for char in ",{}"):
        raise InputError(
            f"{str(folder)!r} has a comma or a brace in it", where="--medusa", hint="rename it"
        )
    names = [step.name for step in recipe.pipeline]
    if "kv-cache" not in names or "medusa-heads" in names:
        why = "has no pass kv-cache" if "kv-cache" not in names else "adds heads already"
        raise InputError(f"the recipe {recipe.name!r} {why}", where="--medusa")
    at = names.index("kv-cache")
    cache = recipe.pipeline[at]
    pipeline = (
        *recipe.pipeline[:at],
        cache.model_copy(update={"options": {**cache.options, "tree": True}}),
        Step(name="medusa-heads", options={"folder": str(folder), "sha256": sha256}),
        *recipe.pipeline[at + 1 :],
    )
    changed = recipe.model_copy(update={"pipeline": pipeline})
    Pipeline.parse(changed.spec(), registry)
    return changed


def with_calibration(recipe: Recipe, text: Path, folder: Path, sha256: str) -> Recipe:
    """The recipe whose passes that calibrate have their text.

    Args:
        recipe: Validated, with such a pass (`calibrates`).
        text: What to calibrate with.
        folder: The model's.
        sha256: Of the text, in hex.

    Raises:
        InputError: A name cannot stand in a pipeline.
    """
    for path in (text, folder):
        if any(char in str(path) for char in ",{}"):
            raise InputError(
                f"{str(path)!r} has a comma or a brace in it",
                where="--calibration",
                hint="rename it",
            )
    options: dict[str, Scalar] = {"text": str(text), "folder": str(folder), "sha256": sha256}
    pipeline = tuple(
        step.model_copy(update={"options": {**step.options, **options}})
        if step.name == CALIBRATE
        else step
        for step in recipe.pipeline
    )
    return recipe.model_copy(update={"pipeline": pipeline})


def calibrates(recipe: Recipe) -> bool:
    """Whether the recipe has a pass that wants a text."""
    return any(step.name == CALIBRATE for step in recipe.pipeline)
