"""Passes that options of a compile add to its recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from optc.compiling.recipes.recipe import Recipe
from optc.errors import InputError
from optc.ir.forms.ragged import RaggedStep
from optc.ir.pipeline import registry
from optc.ir.pipeline.base import Pass
from optc.ir.pipeline.phase import Effect, Phase


def with_adapters(recipe: Recipe, text: str) -> Recipe:
    """The recipe with room for LoRA adapters, its pass ``adapters`` last.

    Args:
        recipe: Validated.
        text: Options of the pass, ``max=8,rank=16``.

    Raises:
        InputError: Not options of the pass, or the recipe runs it already, or ``balance-keys``.
    """
    options: dict[str, object] = {}
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        if not equals:
            raise InputError(f"{item!r} is not option=value", where="--adapters")
        options[name.strip()] = value.strip()
    adapters = registry.added_by("--adapters")
    if _runs(recipe, adapters.name):
        raise InputError(
            f"the recipe {recipe.name!r} runs the pass {adapters.name} already",
            where="--adapters",
            hint=f"override it with --set {adapters.name}.max=8",
        )
    if (scales := _first(recipe, Effect.RESCALES_PROJECTIONS)) is not None:
        raise InputError(
            f"the recipe {recipe.name!r} scales projections of queries and keys, for which no "
            "adapter was trained",
            where="--adapters",
            hint=f"take a recipe without {scales.name}, such as int4-fused",
        )
    return _with_passes(recipe, (*recipe.pipeline.passes, adapters.from_options(options)))


def with_medusa(recipe: Recipe, folder: Path, sha256: str) -> Recipe:
    """The recipe with Medusa heads behind the pass that makes the ragged step, of trees.

    Args:
        recipe: Validated.
        folder: The heads.
        sha256: Of their files, in hex.

    Raises:
        InputError: The recipe makes no ragged step, or adds heads already.
    """
    heads = registry.added_by("--medusa")
    place = _behind_step(recipe, "--medusa")
    if _runs(recipe, heads.name):
        raise InputError(f"the recipe {recipe.name!r} adds heads already", where="--medusa")
    added = heads.from_options({"folder": str(folder), "sha256": sha256})
    *first, step = recipe.pipeline.passes[:place]
    trees = step.with_options({"tree": True})
    return _with_passes(recipe, [*first, trees, added, *recipe.pipeline.passes[place:]])


def with_hidden_states(recipe: Recipe) -> Recipe:
    """The recipe whose steps give hidden states, too.

    Args:
        recipe: Validated. One whose steps do is returned as it is.

    Raises:
        InputError: The recipe makes no ragged step, or changes what hidden states are like.
    """
    place = _behind_step(recipe, "--eagle")
    other = _first(recipe, Effect.REBASES_HIDDEN)
    if other is not None:
        raise InputError(
            f"pass {other.name} of the recipe {recipe.name!r} gives hidden states a scale or a "
            "basis for which no layer was trained",
            where="--eagle",
            hint=f"take a recipe without {other.name}",
        )
    added = registry.added_by("--eagle")
    if _runs(recipe, added.name):
        return recipe
    whole = recipe.pipeline.passes
    return _with_passes(recipe, [*whole[:place], added(), *whole[place:]])


def with_budget(recipe: Recipe, text: str) -> Recipe:
    """The recipe with formats of weights within a budget: its pass that chooses them gets it, or is
    added before what quantizes and corrects weights. With ``,prune`` behind it, neurons may go too:
    a pass for that is added behind those that prune whole structures.

    Args:
        recipe: Validated.
        text: As the pass takes it, or ``3bpw,prune``.

    Raises:
        InputError: It is no budget, or the recipe's weights cannot have formats of their own.
    """
    budget, comma, rest = text.partition(",")
    if comma and rest.strip() != "prune":
        raise InputError(
            f"{rest.strip()!r} is nothing that a budget can choose among beside bits",
            where="--budget",
            hint=f"write {budget.strip()},prune or {budget.strip()}",
        )
    changed = _with_bits(recipe, {"budget": budget})
    prune = registry.added_by("--budget BUDGET,prune")
    if not comma or _runs(changed, prune.name):
        return changed
    whole, place = changed.pipeline.passes, changed.pipeline.behind(Phase.STRUCTURE)
    return _with_passes(changed, [*whole[:place], prune(), *whole[place:]])


def _with_bits(recipe: Recipe, options: Mapping[str, object]) -> Recipe:
    """The recipe whose pass that chooses formats has these options."""
    choose, whole = registry.added_by("--budget"), recipe.pipeline.passes
    if _runs(recipe, choose.name):
        passes = [one.with_options(options) if one.name == choose.name else one for one in whole]
        return _with_passes(recipe, passes)
    rounding = [one for one in whole if one.phase is Phase.ROUNDING]
    scales = [one.stated_options().get("group_scales") for one in rounding]
    if "int" not in scales:
        raise InputError(
            f"the recipe {recipe.name!r} quantizes no weights to integer scales of groups",
            where="--budget",
            hint="take mixed-4, or one with integer scales of groups (group_scales=int)",
        )
    place = recipe.pipeline.behind(Phase.STATISTICS)
    return _with_passes(recipe, [*whole[:place], choose.from_options(options), *whole[place:]])


def with_structures_pruned(recipe: Recipe, shares: Mapping[str, float | None]) -> Recipe:
    """The recipe that first takes structures out of the model.

    Args:
        recipe: Validated.
        shares: What is left, by what is taken out (``depth``, ``width``: `Pass.added_by`), in the
            order in which that is done; None leaves it.

    Raises:
        InputError: The recipe prunes so already.
    """
    added = [
        registry.added_by(f"--draft self:{what}").from_options({"target": f"{share:g}x"})
        for what, share in shares.items()
        if share is not None
    ]
    whole, place = recipe.pipeline.passes, recipe.pipeline.behind(Phase.VOCABULARY)
    return _with_passes(recipe, [*whole[:place], *added, *whole[place:]])


def with_calibration(
    recipe: Recipe, text: Path | None, folder: Path, sha256: str, cache: str = ""
) -> Recipe:
    """The recipe whose passes that calibrate have their text.

    Args:
        recipe: Validated, with such a pass (`calibrates`).
        text: What to calibrate with; None is the text shipped with optc.
        folder: The model's.
        sha256: Of the text, in hex.
        cache: Folder of calibrations that are used again; empty is none.
    """
    path = "" if text is None else str(text)
    options = {"text": path, "folder": str(folder), "sha256": sha256, "cache": cache}
    passes = [
        one.with_options(options) if one.has(Effect.READS_TEXT) else one
        for one in recipe.pipeline.passes
    ]
    return _with_passes(recipe, passes)


def with_calibration_cache(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe whose passes that read a text keep calibrations in ``folder``, if they have no
    cache."""
    passes = [
        one.with_options({"cache": str(folder)})
        if one.has(Effect.READS_TEXT) and not getattr(one, "cache", "")
        else one
        for one in recipe.pipeline.passes
    ]
    return _with_passes(recipe, passes)


def with_vocabulary(recipe: Recipe, folder: Path, sha256: str) -> Recipe:
    """The recipe whose passes know a trimmed vocabulary: ``vocab-trim``, if it is run, gets the
    list of tokens, and passes that read a text read it with the trimmed tokenizer.

    Args:
        recipe: Validated.
        folder: Has the list, the tokenizer, and a ``config.json`` with its BOS and EOS.
        sha256: Of the list, in hex.
    """
    own = {"folder": str(folder), "sha256": sha256}
    passes = []
    for one in recipe.pipeline.passes:
        if one.has(Effect.REMOVES_TOKENS):
            one = one.with_options(own)
        elif one.has(Effect.READS_TEXT):
            one = one.with_options({"folder": str(folder)})
        passes.append(one)
    return _with_passes(recipe, passes)


def trims(recipe: Recipe) -> bool:
    """True if the recipe trims the vocabulary to that of a text."""
    return recipe.pipeline.has(Effect.REMOVES_TOKENS)


def calibrates(recipe: Recipe) -> bool:
    """True if the recipe has a pass that wants a text."""
    return recipe.pipeline.has(Effect.READS_TEXT)


def _runs(recipe: Recipe, name: str) -> bool:
    return any(one.name == name for one in recipe.pipeline.passes)


def _behind_step(recipe: Recipe, option: str) -> int:
    """The place behind the pass that makes the ragged step.

    Raises:
        InputError: The recipe has none; ``option`` wants it.
    """
    steps = [i for i, one in enumerate(recipe.pipeline.passes) if one.gives is RaggedStep]
    if not steps:
        raise InputError(
            f"the recipe {recipe.name!r} has no pass that leads to a paged KV cache", where=option
        )
    return steps[0] + 1


def _first(recipe: Recipe, effects: Effect) -> Pass | None:
    return next((one for one in recipe.pipeline.passes if one.has(effects)), None)


def _with_passes(recipe: Recipe, passes: Sequence[Pass]) -> Recipe:
    """The recipe with these passes, whose order is checked."""
    pipeline = replace(recipe.pipeline, passes=tuple(passes))
    pipeline.validate()
    return replace(recipe, pipeline=pipeline)
