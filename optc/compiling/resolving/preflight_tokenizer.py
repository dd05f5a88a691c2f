"""Refusals by a model's tokenizer files, before anything is imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from optc.compiling.recipes.recipe import Recipe
from optc.compiling.recipes.recipe_additions import calibrates
from optc.compiling.resolving.draft_spec import DraftSpec
from optc.compiling.resolving.tokenizer import VOCABULARIES
from optc.errors import InputError
from optc.importer.json_file import read_object
from optc.importer.tokenizer_files import TOKENIZER_FILES
from optc.ir.pipeline.phase import Effect
from optc.system.foreign.errors import foreign_errors
from optc.system.options import AUTO, CompileOptions

#: What passes that calibrate read texts with.
_FILE = "tokenizer.json"
_DAMAGED = "the file is damaged: download it again"


def check_tokenizer(
    source: Path, asked: CompileOptions, recipe: Recipe, specs: Sequence[DraftSpec]
) -> None:
    """Check that a model has a tokenizer where a text is to be read.

    Args:
        source: The model's folder.
        asked: What the user said.
        recipe: The recipe.
        specs: Drafts that may be made of the model.

    Raises:
        InputError: It has none, or one of its files is no JSON, or no tokenizer.
    """
    names = {name for name in TOKENIZER_FILES if (source / name).is_file()}
    if (source / "config.json").is_file():
        for option, hint in _reading(names, asked, recipe, specs):
            raise InputError(
                f"the model has no {_FILE} to read a text with", where=option, hint=hint
            )
    check_tokenizer_files(source)


def check_tokenizer_files(source: Path) -> None:
    """Check that what there is of a tokenizer can be read.

    Raises:
        InputError: One of the files is no JSON, or no tokenizer.
    """
    for file in (source / name for name in sorted(TOKENIZER_FILES)):
        if file.suffix == ".json" and file.is_file():
            found = file.stat()
            check = _check_vocabulary if file.name == _FILE else _check_object
            check(file, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=16)
def _check_object(file: Path, _changed: int, _size: int) -> None:
    """Check that a file holds a JSON object: once, though each recipe of a ladder asks for it."""
    read_object(file, finite=False)


@lru_cache(maxsize=16)
def _check_vocabulary(file: Path, _changed: int, _size: int) -> None:
    """Check that the tokenizers package reads a file, as a compile does at its end."""
    import tokenizers  # a heavy import that a model without this file does not need

    _check_object(file, _changed, _size)
    with foreign_errors(str(file), "not a tokenizer that can be read", _DAMAGED):
        tokenizers.Tokenizer.from_file(str(file))


def without_tokenizer(source: Path) -> list[str]:
    """A warning about the model in ``source`` if it has none."""
    if any((source / name).is_file() for name in VOCABULARIES):
        return []
    return ["the model has no tokenizer: the artifact will take and give token ids, not texts"]


def _reading(
    names: set[str], asked: CompileOptions, recipe: Recipe, specs: Sequence[DraftSpec]
) -> Iterator[tuple[str, str]]:
    """Each option that reads a text which cannot be read, and what to do."""
    if asked.calibration is not None and calibrates(recipe) and _FILE not in names:
        yield "--calibration", "leave it out; random token ids are taken then"
    if any(one.distill is not None for one in specs) and _FILE not in names:
        yield f"--draft {specs[0].text}", "leave distill out"
    if names & VOCABULARIES:
        return
    if asked.eval_text is not None and (not asked.no_gates or asked.bisect):
        yield "--eval-text", "leave it out; random token ids are scored then"
    for one in recipe.pipeline.passes:
        if one.has(Effect.REMOVES_TOKENS):
            yield f"pass {one.name}", "leave the pass out"
    if asked.self_draft == AUTO:
        yield "--self-draft auto", "give the number of layers"
    if len(specs) > 1:
        yield "--draft self:auto", f"name one: --draft {specs[0].text}"
