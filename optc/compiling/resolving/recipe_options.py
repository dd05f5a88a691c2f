"""The recipe of a compile, with all that options change in it and add to it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.compiling.recipes.recipe import Recipe, load_recipe
from optc.compiling.recipes.recipe_additions import (
    calibrates,
    trims,
    with_adapters,
    with_budget,
    with_calibration,
    with_hidden_states,
    with_medusa,
)
from optc.compiling.resolving.budget import measured_budget
from optc.compiling.resolving.draft_spec import parse_draft
from optc.compiling.resolving.trained import with_trained
from optc.errors import InputError
from optc.importer.hub import local_files
from optc.proof.conversations.read import read_texts
from optc.system.options import AUTO, CompileOptions
from optc.system.progress import Progress, no_progress

#: Environment variable that names a cache folder where no option does.
CACHE_VARIABLE = "OPTC_CALIBRATION_CACHE"
#: What it says, or the option, where nothing is to be kept.
NO_CACHE = "none"


def resolve_recipe(source: Path, asked: CompileOptions) -> tuple[Recipe, Recipe, list[str]]:
    """The recipe of a model, that of a model that drafts for it, and warnings.

    A draft gets neither room for adapters nor heads nor trained weights.

    Args:
        source: Folder of the model.
        asked: What the user said.

    Raises:
        InputError: An unknown name, a bad value or a missing file.
    """
    _check_named(asked)
    loaded = load_recipe(asked.recipe, sets=asked.set, gates=asked.gate)
    if loaded.task != TEXT_GENERATION.name:
        raise InputError(
            f"the recipe {loaded.name!r} is for the task {loaded.task!r}, and the model generates "
            "text",
            where="--recipe",
            hint="optc recipes lists those for decoders, such as int8-fused",
        )
    warnings: list[str] = []
    if asked.budget is not None:
        loaded = with_budget(loaded, measured_budget(asked.budget))
    loaded = calibrated(loaded, asked, source, warnings)
    whole = loaded if asked.adapters is None else with_adapters(loaded, asked.adapters)
    if asked.medusa is not None:
        whole = _with_heads(whole, asked.medusa)
    if asked.eagle is not None:
        from optc.importer.additions.eagle import digest_eagle

        digest_eagle(asked.eagle)  # so that no folder that is none is noticed late
        whole = with_hidden_states(whole)
    if asked.trained is not None:
        whole = _with_trained(whole, asked.trained, asked)
    return whole, loaded, warnings


def _check_named(asked: CompileOptions) -> None:
    """Refuse what concerns several recipes where one is named, and the other way round."""
    if asked.recipe == AUTO:
        raise InputError(
            "'auto' is no recipe but a search among several",
            where="--recipe",
            hint="optc compile and optc plan take it, and optc.plan_ladder; name one here",
        )
    for name in ("objective", "ladder"):
        if getattr(asked, name):
            raise InputError(
                f"the recipe {asked.recipe!s} is named, and nothing is chosen",
                where=f"--{name}",
                hint=f"leave it out, or take --recipe {AUTO}",
            )


def with_local_files(asked: CompileOptions, progress: Progress = no_progress) -> CompileOptions:
    """The options with folders in the place of names of the Hub, for all that belongs to a model:
    heads, layers that draft, trained weights.

    Raises:
        InputError: There is no such folder or repository.
        UnavailableError: The Hub cannot be reached.
    """
    from optc.importer.additions import eagle, heads, trained

    return replace(
        asked,
        medusa=local_files(asked.medusa, (heads.CONFIG_FILE, heads.WEIGHTS_FILE), progress),
        eagle=local_files(asked.eagle, (eagle.CONFIG_FILE, eagle.WEIGHTS_FILE), progress),
        trained=local_files(asked.trained, trained.FILES, progress),
    )


def check_text(path: Path, where: str) -> None:
    """Check that an option names a file.

    Raises:
        InputError: There is none.
    """
    if not path.is_file():
        raise InputError(f"no such file: {path}", where=where)


def calibrated(recipe: Recipe, asked: CompileOptions, source: Path, warnings: list[str]) -> Recipe:
    """The recipe with its text to calibrate with; a warning if nothing wants one. Whether it is of
    the model's domain is measured (`optc.compiling.judging.calibration_domain`).

    Args:
        recipe: Validated.
        asked: What the user said.
        source: Folder of the model.
        warnings: Gets the warnings.

    Raises:
        InputError: The text is missing.
    """
    text = asked.calibration
    if text is not None:
        check_text(text, "--calibration")
        read_texts(text)
    if not calibrates(recipe):
        if text is not None and not (trims(recipe) or _draft_reads_text(asked)):
            why = f"recipe {recipe.name} has no pass that calibrates"
            warnings.append(f"{why}: the text is not used")
        return recipe
    from optc.proof.reference.text import calibration_text, digest_text

    digest = digest_text(text or calibration_text())
    return with_calibration(recipe, text, source, digest, calibration_folder(asked))


def calibration_folder(asked: CompileOptions) -> str:
    """The folder of calibrations: as asked, as the environment says, or the user's cache folder;
    empty if `NO_CACHE` was asked for."""
    from optc.proof.reference.calibration_cache import user_calibrations

    named = asked.calibration_cache or os.environ.get(CACHE_VARIABLE) or user_calibrations()
    return "" if str(named) == NO_CACHE else str(named)


def _draft_reads_text(asked: CompileOptions) -> bool:
    """True if a draft is made of the target: it is pruned and rounded by a text."""
    return asked.draft is not None and bool(parse_draft(str(asked.draft)))


def _with_heads(recipe: Recipe, folder: Path) -> Recipe:
    from optc.importer.additions.heads import digest_heads

    return with_medusa(recipe, folder, digest_heads(folder))


def _with_trained(recipe: Recipe, folder: Path, asked: CompileOptions) -> Recipe:
    from optc.importer.additions.trained import digest_trained, read_trained

    if asked.self_draft is not None:
        raise InputError(
            "a draft of the first layers would not have the trained weights",
            where="--self-draft",
            hint="leave out --self-draft or --trained",
        )
    rounded = bool(read_trained(folder).rounded)
    return with_trained(recipe, folder, digest_trained(folder), rounded=rounded)
