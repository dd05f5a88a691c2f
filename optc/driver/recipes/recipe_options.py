"""The recipe of a compile, with all that options change in it and add to it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from optc.errors import InputError
from optc.recipe import Recipe, load_recipe
from optc.recipe_additions import calibrates, with_adapters, with_calibration, with_medusa


def resolve_recipe(
    recipe: str | Path,
    source: Path,
    *,
    set: Iterable[str] = (),
    gate: Iterable[str] = (),
    calibration: str | Path | None = None,
    adapters: str | None = None,
    medusa: str | Path | None = None,
) -> tuple[Recipe, Recipe, list[str]]:
    """The recipe of a model, that of a model that drafts for it, and warnings.

    Args:
        recipe: Name or path.
        source: Folder of the model.
        set, gate, calibration, adapters, medusa: As of `optc.compile`; a draft gets neither room
            for adapters nor heads.

    Raises:
        InputError: An unknown name, a bad value or a missing file.
    """
    loaded = load_recipe(recipe, sets=set, gates=gate)
    warnings: list[str] = []
    if calibration is not None:
        loaded = _calibrated(loaded, Path(calibration), source, warnings)
    elif calibrates(loaded):
        raise InputError(
            f"the recipe {loaded.name!r} calibrates, and there is no text to do it with",
            where="--calibration",
            hint="give one such as the model was trained on: .jsonl or plain text",
        )
    whole = loaded if adapters is None else with_adapters(loaded, adapters)
    if medusa is not None:
        whole = _with_heads(whole, Path(medusa))
    return whole, loaded, warnings


def check_text(path: Path, where: str) -> None:
    """Check that an option names a file.

    Raises:
        InputError: There is none.
    """
    if not path.is_file():
        raise InputError(f"no such file: {path}", where=where)


def _calibrated(recipe: Recipe, text: Path, source: Path, warnings: list[str]) -> Recipe:
    """The recipe with its text to calibrate with; a warning if it wants none."""
    check_text(text, "--calibration")
    if not calibrates(recipe):
        warnings.append(f"recipe {recipe.name} has no pass that calibrates: the text is not used")
        return recipe
    from optc.reference.text import digest_text

    return with_calibration(recipe, text, source, digest_text(text))


def _with_heads(recipe: Recipe, folder: Path) -> Recipe:
    from optc.importer.heads import digest_heads

    return with_medusa(recipe, folder, digest_heads(folder))
