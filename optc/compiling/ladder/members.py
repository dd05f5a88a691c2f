"""The recipes of a ladder: those that are general, of the backend that is wanted.

A recipe whose passes take something out of the model (weights, layers, neurons, tokens) makes
another model of it, and whether that is one's wish no gate says: such recipes are tried only by
name (``--ladder``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from optc import registry
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.compiling.recipes.recipe import Recipe, load_recipe
from optc.compiling.recipes.recipe_additions import trims
from optc.compiling.resolving.engines import name_engines
from optc.errors import InputError
from optc.ir.pipeline import registry as pass_registry
from optc.ir.pipeline.entries import check_pass
from optc.ir.pipeline.phase import Effect
from optc.system.options import CompileOptions

#: Stands for all general recipes among the names of ``--ladder``.
ALL = "all"
#: A recipe, and where it came from.
_Found = tuple[str | Path, Recipe]


@dataclass(frozen=True)
class Member:
    """A recipe of a ladder, and the options of its compile.

    Attributes:
        source: Name of the recipe, or its file.
        recipe: As it is written, without what options change.
        asked: What is asked of a compile with this recipe.
    """

    source: str | Path
    recipe: Recipe
    asked: CompileOptions


def find_members(
    asked: CompileOptions, bounds: Sequence[str], task: str = TEXT_GENERATION.name
) -> tuple[Member, ...]:
    """The recipes to try.

    Args:
        asked: What the user said of ``--recipe auto``.
        bounds: Of the ladder's gates, ``name=bound``; gates of a recipe without one of them are
            reported and not judged.
        task: That recipes name.

    Raises:
        InputError: An unknown recipe, two of one name, one that trims the vocabulary or is for
            another task, or an option of a pass that none has.
    """
    found = [(source, _load(source)) for source in _sources(asked, task)]
    names = [recipe.name for _, recipe in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two recipes are called {twice!r}", where="--ladder")
    trimming = next((recipe.name for _, recipe in found if trims(recipe)), None)
    if trimming is not None:
        raise InputError(
            f"the recipe {trimming!r} trims the vocabulary, and all recipes of a ladder are "
            "compared with one model",
            where="--ladder",
            hint="compile it by --recipe",
        )
    other = next((recipe for _, recipe in found if recipe.task != task), None)
    if other is not None:
        raise InputError(
            f"the recipe {other.name!r} is for the task {other.task!r}",
            where="--ladder",
            hint=f"the model takes recipes for {task!r}",
        )
    _check_sets(asked.set, found)
    return tuple(
        Member(source, recipe, _asked(asked, source, recipe, bounds)) for source, recipe in found
    )


def is_general(recipe: Recipe) -> bool:
    """True if none of its passes takes anything out of the model."""
    return not recipe.pipeline.has(Effect.REMOVES_TOKENS | Effect.REMOVES_WEIGHTS)


def general_recipes(backend: str) -> list[str]:
    """Names of the general recipes for a backend; of one that no recipe names those of the backend
    of the default recipe, whose recipes adapt to the others (``for_engines``)."""
    recipes = _recipes_for(TEXT_GENERATION.name)
    named = {recipe.backend for recipe in recipes.values()}
    wanted = backend if backend in named else _default_backend()
    return [name for name, recipe in recipes.items() if recipe.backend == wanted]


def _recipes_for(task: str) -> dict[str, Recipe]:
    """The shipped general recipes for a task."""
    loaded = {name: load_recipe(name) for name in registry.recipe_files()}
    return {name: r for name, r in loaded.items() if r.task == task and is_general(r)}


def _sources(asked: CompileOptions, task: str) -> list[str | Path]:
    general = _general(asked, task)
    sources: list[str | Path] = []
    for name in asked.ladder or (ALL,):
        sources += general if name == ALL else [name]
    return list(dict.fromkeys(sources))


def _general(asked: CompileOptions, task: str) -> list[str]:
    if task != TEXT_GENERATION.name:
        return list(_recipes_for(task))
    backend = name_engines(asked.backend, asked.target, _default_backend())[0].backend.name
    return general_recipes(backend)


def _load(source: str | Path) -> Recipe:
    try:
        return load_recipe(source)
    except InputError as error:
        if error.where != "--recipe":
            raise
        raise InputError(error.message, where="--ladder", hint=error.hint) from error


def _default_backend() -> str:
    return load_recipe(CompileOptions().recipe).backend


def _check_sets(sets: Sequence[str], found: Sequence[_Found]) -> None:
    """Refuse an option that no recipe takes; one that some take is for those."""
    known = {one.name for _, recipe in found for one in recipe.pipeline.passes}
    for text in sets:
        name = _pass_of(text)
        check_pass(name, pass_registry, "--set")
        if name not in known:
            raise InputError(
                f"no recipe of the ladder has the pass {name!r}",
                where="--set",
                hint=f"one of {', '.join(sorted(known))}",
            )
        refusals = [_refusal(source, text) for source, recipe in found if _has(recipe, name)]
        if all(refusals):
            raise next(one for one in refusals if one is not None)


def _refusal(source: str | Path, text: str) -> InputError | None:
    try:
        load_recipe(source, sets=[text])
    except InputError as error:
        return error
    return None


def _has(recipe: Recipe, name: str) -> bool:
    return any(one.name == name for one in recipe.pipeline.passes)


def _pass_of(text: str) -> str:
    return text.partition("=")[0].partition(".")[0]


def _asked(
    asked: CompileOptions, source: str | Path, recipe: Recipe, bounds: Sequence[str]
) -> CompileOptions:
    """The options of one recipe: its own passes' options, and the ladder's gates in place of its
    own."""
    sets = [text for text in asked.set if _has(recipe, _pass_of(text))]
    judged = {text.partition("=")[0] for text in bounds}
    reported = [f"{gate}=none" for gate in recipe.gates if gate not in judged]
    return replace(
        asked, recipe=source, set=sets, gate=[*reported, *bounds], objective=None, ladder=()
    )
