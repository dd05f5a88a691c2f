"""Sentences of the shipped text, as inputs of models of texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import tokenizers

from optc.artifact.artifact import Artifact
from optc.artifact.tasks.reranking import RERANKING
from optc.artifact.tasks.task import Task
from optc.artifact.tasks.tensors import TENSORS
from optc.compiling.parts.baseline import BASELINE, build_baseline
from optc.compiling.tensors.samples import read_samples
from optc.compiling.tensors.trying import BuiltTensors, random_samples
from optc.proof.reference.text import default_documents
from optc.runtime.executable.tensors_interface import TensorsInterface
from optc.runtime.tensors.texts import Text, text_inputs
from optc.system.scratch import Scratch

if TYPE_CHECKING:
    from optc.importer.tensors.imported import ImportedTensors

Array = npt.NDArray[Any]
#: Sentences in all, and of a call.
_COUNT, _BATCH = 256, 32
#: Shorter pieces are headings and numbers.
_LEAST_CHARACTERS = 30
_ENDS = re.compile(r"(?<=[.!?])\s+|\n\s*\n")


def sentences(count: int = _COUNT) -> list[str]:
    """So many different sentences, evenly spaced over the shipped text."""
    pieces = (piece.strip() for text in default_documents() for piece in _ENDS.split(text))
    found = list(dict.fromkeys(one for one in pieces if len(one) >= _LEAST_CHARACTERS))
    step = max(1, len(found) // count)
    return found[::step][:count]


def tokenizer_of(artifact: Artifact) -> str | None:
    """The content of an artifact's ``tokenizer.json``; None where it has none."""
    tokenizer = artifact.manifest.tokenizer
    if tokenizer is None:
        return None
    return (artifact.path / tokenizer.files[0]).read_text("utf-8")


def sentence_samples(
    tokenizer: str, interface: TensorsInterface, task: Task = TENSORS
) -> tuple[Mapping[str, Array], ...]:
    """Batches of sentences; to rerank each is behind the first of its batch, which asks.

    Args:
        tokenizer: JSON of one that truncates and pads.
        interface: Of the model.
        task: What it is for.
    """
    return text_samples(tokenizer, interface, sentences(), task)


def text_samples(
    tokenizer: str, interface: TensorsInterface, texts: Sequence[str], task: Task = TENSORS
) -> tuple[Mapping[str, Array], ...]:
    """Batches of texts, as of `sentence_samples`."""
    reader = tokenizers.Tokenizer.from_str(tokenizer)
    batches: list[list[Text]] = []
    for start in range(0, len(texts), _BATCH):
        query, *others = texts[start : start + _BATCH]
        paired = task.name == RERANKING.name
        batches.append([(query, one) for one in others] if paired else [query, *others])
    return tuple(text_inputs(reader, batch, interface) for batch in batches if batch)


def samples_for(
    imported: ImportedTensors, given: Sequence[Path | Mapping[str, Array]]
) -> tuple[Sequence[Mapping[str, Array]], Sequence[str]]:
    """Inputs to judge a model by, and what the user should know of them: the user's, the source's
    own, sentences, or random ones.

    Raises:
        InputError: A file of the user is none.
    """
    samples = read_samples(given, imported.interface, imported.images) or imported.samples
    if not samples and imported.tokenizer:
        samples = sentence_samples(imported.tokenizer, imported.interface, imported.task)
    if samples:
        return samples, ()
    warning = (
        "the model is judged by random inputs: --inputs FILE.npz gives some such as it will get"
    )
    with Scratch("samples") as scratch:
        folder = Path(scratch) / "graph"
        data = build_baseline(imported.model.clone(), imported, folder)
        built = BuiltTensors(folder, BASELINE, imported.interface, data)
        return random_samples(built), (warning,)
