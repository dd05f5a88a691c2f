"""`Parts`: an imported model of named tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from optc.artifact.manifest import TOKENIZER_FILE, TokenizerEntry
from optc.artifact.tasks.task import Task
from optc.artifact.writer import ArtifactWriter
from optc.compiling.parts.judging import Judge
from optc.compiling.parts.step import StepPart

if TYPE_CHECKING:
    from optc.compiling.recipes.recipe import Recipe
    from optc.importer.tensors.imported import ImportedTensors


@dataclass(frozen=True)
class Parts:
    """An imported model, whose graphs stay as they are.

    Attributes:
        task: What it is for.
        name: Of the model.
        digest: sha256 in hex of all graphs and their weights.
        graphs: By role of the engine.
        judge: Measures the gates of a recipe's engines.
        write: Puts the artifact's other files in place; gives the tokenizer's entry, if it has one.
        warnings: What the user should know.
        calibrate: Gives the graphs samples, for passes that learn from some, and tells what the
            user should know of these; None where there are none.
        step: The engine of the role ``target`` as a decoder of steps, if it can be one.
    """

    task: Task
    name: str
    digest: str
    graphs: Mapping[str, ImportedTensors]
    judge: Callable[[Recipe], Judge[Any]]
    write: Callable[[ArtifactWriter], TokenizerEntry | None]
    warnings: Sequence[str] = ()
    calibrate: Callable[[], Sequence[str]] | None = None
    step: StepPart | None = None


@dataclass(frozen=True)
class PartsSource:
    """A model to be imported.

    Attributes:
        kind: The task that recipes for such models name.
        name: Of the model, for the artifact's folder.
        load: Imports it.
        hint: Which recipes there are.
        task: What it is for; None where an import has to tell.
    """

    kind: str
    name: str
    load: Callable[[], Parts]
    hint: str
    task: Task | None = None


def write_tokenizer(
    writer: ArtifactWriter, tokenizer: str, ends: Sequence[int] = ()
) -> TokenizerEntry | None:
    """Write a tokenizer's JSON, of tokens that end a text, if there is one."""
    if not tokenizer:
        return None
    (writer.subfolder("tokenizer") / "tokenizer.json").write_text(tokenizer, "utf-8")
    return TokenizerEntry((TOKENIZER_FILE,), None, tuple(ends), add_bos=False)


def write_conventions(writer: ArtifactWriter, name: str, conventions: object) -> None:
    """Write the conventions of a model as a file of JSON."""
    text = json.dumps(to_builtins(conventions), indent=1, sort_keys=True)
    (writer.folder / name).write_text(text + "\n", "utf-8")
