"""An encoder-decoder of text to be compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optc.artifact.manifest import TokenizerEntry
from optc.artifact.tasks.text_to_text import TEXT_TO_TEXT
from optc.artifact.writer import ArtifactWriter
from optc.compiling.parts.given import check_given
from optc.compiling.parts.parts import (
    Parts,
    PartsSource,
    write_conventions,
    write_tokenizer,
)
from optc.compiling.parts.step import StepPart
from optc.compiling.text_to_text.judge import TextToTextJudge
from optc.compiling.text_to_text.texts import read_texts
from optc.importer.tensors.text_to_text import ImportedTextToText, import_text_to_text
from optc.runtime.text_to_text.conventions import CONVENTIONS_FILE
from optc.system.options import CompileOptions

#: Tokens of a sequence beyond those of a text with its start: the text's last one and, where a gate
#: asks what would follow a whole text, that one; tables of positions have room for these.
_BEYOND = 2


def text_to_text_source(
    folder: Path, given: Mapping[str, Any], asked: CompileOptions
) -> PartsSource:
    """An encoder-decoder of text.

    Args:
        folder: Of the model, for transformers.
        given: ``inputs``: texts to judge it by (`optc.compiling.text_to_text.texts`); none are
            sentences that ship.
        asked: Of its options those count that do not concern generators of text.

    Raises:
        InputError: Bad usage, or a bad text.
    """
    inputs = check_given(given, "models that turn texts into texts")
    texts = read_texts(inputs, asked.calibration)
    return PartsSource(
        kind=TEXT_TO_TEXT.name,
        name=folder.resolve().name,
        load=lambda: _parts(import_text_to_text(folder), texts),
        hint="such as text2text-fp32 or text2text-int8",
        task=TEXT_TO_TEXT,
    )


def _parts(imported: ImportedTextToText, texts: Sequence[str]) -> Parts:
    """Encoder and decoder; the tokenizer and the conventions are files of the artifact."""

    def write(writer: ArtifactWriter) -> TokenizerEntry | None:
        write_conventions(writer, CONVENTIONS_FILE, imported.conventions)
        return write_tokenizer(writer, imported.tokenizer, imported.conventions.ends)

    return Parts(
        task=TEXT_TO_TEXT,
        name=imported.name,
        digest=imported.digest,
        graphs=imported.models.by_role,
        judge=lambda recipe: TextToTextJudge(imported, texts),
        write=write,
        warnings=imported.warnings,
        step=StepPart(imported.models.export_step, imported.conventions.positions + _BEYOND),
    )
