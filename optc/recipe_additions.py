"""Passes that options of a compile add to its recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from optc.errors import InputError
from optc.pipeline import registry
from optc.pipeline.base import Pass
from optc.pipeline.phase import Effect, Phase
from optc.recipe import Recipe

#: The pass that drops tokens which a text does not use.
TRIMS = "vocab-trim"
#: The pass that takes out neurons where a budget is then better spent.
TO_BUDGET = "prune-to-budget"


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
    if _runs(recipe, "adapters"):
        raise InputError(
            f"the recipe {recipe.name!r} runs the pass adapters already",
            where="--adapters",
            hint="override it with --set adapters.max=8",
        )
    if (scales := _first(recipe, Effect.RESCALES_PROJECTIONS)) is not None:
        raise InputError(
            f"the recipe {recipe.name!r} scales projections of queries and keys, for which no "
            "adapter was trained",
            where="--adapters",
            hint=f"take a recipe without {scales.name}, such as int4-fused",
        )
    added = registry.passes()["adapters"].from_options(options)
    return _with_passes(recipe, (*recipe.pipeline.passes, added))


def with_medusa(recipe: Recipe, folder: Path, sha256: str) -> Recipe:
    """The recipe with Medusa heads: the pass `medusa-heads` behind `kv-cache`, which makes trees.

    Args:
        recipe: Validated.
        folder: The heads.
        sha256: Of their files, in hex.

    Raises:
        InputError: The recipe makes no ragged step, or adds heads already.
    """
    if not _runs(recipe, "kv-cache") or _runs(recipe, "medusa-heads"):
        why = "adds heads already" if _runs(recipe, "kv-cache") else "has no pass kv-cache"
        raise InputError(f"the recipe {recipe.name!r} {why}", where="--medusa")
    options = {"folder": str(folder), "sha256": sha256}
    heads = registry.passes()["medusa-heads"].from_options(options)
    passes: list[Pass] = []
    for one in recipe.pipeline.passes:
        passes += [one.with_options({"tree": True}), heads] if one.name == "kv-cache" else [one]
    return _with_passes(recipe, passes)


def with_hidden_states(recipe: Recipe) -> Recipe:
    """The recipe whose steps give hidden states: the pass `hidden-states` behind `kv-cache`.

    Args:
        recipe: Validated. One with that pass is returned as it is.

    Raises:
        InputError: The recipe makes no ragged step, or changes what hidden states are like.
    """
    if not _runs(recipe, "kv-cache"):
        raise InputError(f"the recipe {recipe.name!r} has no pass kv-cache", where="--eagle")
    other = _first(recipe, Effect.REBASES_HIDDEN)
    if other is not None:
        raise InputError(
            f"pass {other.name} of the recipe {recipe.name!r} gives hidden states a scale or a "
            "basis for which no layer was trained",
            where="--eagle",
            hint=f"take a recipe without {other.name}",
        )
    if _runs(recipe, "hidden-states"):
        return recipe
    added = registry.passes()["hidden-states"].from_options({})
    passes: list[Pass] = []
    for one in recipe.pipeline.passes:
        passes += [one, added] if one.name == "kv-cache" else [one]
    return _with_passes(recipe, passes)


def with_budget(recipe: Recipe, text: str) -> Recipe:
    """The recipe with formats of weights within a budget: its pass ``allocate-bits`` gets it, or is
    added before what quantizes and corrects weights. With ``,prune`` behind it, neurons may go too:
    the pass ``prune-to-budget`` is added behind those that prune whole structures.

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
    if not comma or _runs(changed, TO_BUDGET):
        return changed
    whole, place = changed.pipeline.passes, changed.pipeline.behind(Phase.STRUCTURE)
    added = registry.passes()[TO_BUDGET].from_options({})
    return _with_passes(changed, [*whole[:place], added, *whole[place:]])


def _with_bits(recipe: Recipe, options: Mapping[str, object]) -> Recipe:
    """The recipe whose pass ``allocate-bits`` has these options."""
    if _runs(recipe, "allocate-bits"):
        passes = [
            one.with_options(options) if one.name == "allocate-bits" else one
            for one in recipe.pipeline.passes
        ]
        return _with_passes(recipe, passes)
    quantize = [one for one in recipe.pipeline.passes if one.name == "quantize-weights"]
    if not any(one.stated_options().get("group_scales") == "int" for one in quantize):
        raise InputError(
            f"the recipe {recipe.name!r} quantizes no weights to integer scales of groups",
            where="--budget",
            hint="take mixed-4, or one with quantize-weights.group_scales=int",
        )
    added = registry.passes()["allocate-bits"].from_options(options)
    whole, place = recipe.pipeline.passes, recipe.pipeline.behind(Phase.STATISTICS)
    return _with_passes(recipe, [*whole[:place], added, *whole[place:]])


def with_structures_pruned(recipe: Recipe, shares: Mapping[str, float | None]) -> Recipe:
    """The recipe that first takes structures out of the model.

    Args:
        recipe: Validated.
        shares: What is left, by pass, in the order in which they run; None leaves a pass out.

    Raises:
        InputError: The recipe prunes so already.
    """
    known = registry.passes()
    added = [
        known[name].from_options({"target": f"{share:g}x"})
        for name, share in shares.items()
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
    """Whether the recipe trims the vocabulary to that of a text."""
    return recipe.pipeline.has(Effect.REMOVES_TOKENS)


def calibrates(recipe: Recipe) -> bool:
    """Whether the recipe has a pass that wants a text."""
    return recipe.pipeline.has(Effect.READS_TEXT)


def _runs(recipe: Recipe, name: str) -> bool:
    return any(one.name == name for one in recipe.pipeline.passes)


def _first(recipe: Recipe, effects: Effect) -> Pass | None:
    return next((one for one in recipe.pipeline.passes if one.has(effects)), None)


def _with_passes(recipe: Recipe, passes: Sequence[Pass]) -> Recipe:
    """The recipe with these passes, whose order is checked."""
    pipeline = replace(recipe.pipeline, passes=tuple(passes))
    pipeline.validate()
    return replace(recipe, pipeline=pipeline)
