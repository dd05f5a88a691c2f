"""One compile of a model that turns texts into texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import TOKENIZER_FILE, TokenizerEntry
from optc.artifact.tasks.text_to_text import TEXT_TO_TEXT
from optc.artifact.writer import ArtifactWriter
from optc.compiling.parts.compile import Parts, compile_parts
from optc.compiling.parts.step import StepPart
from optc.compiling.text_to_text.judge import judge_rewriter
from optc.compiling.text_to_text.texts import Texts
from optc.errors import InputError
from optc.importer.tensors.text_to_text import ImportedRewriter, import_rewriter
from optc.runtime.text_to_text.conventions import CONVENTIONS_FILE
from optc.system.options import CompileOptions
from optc.system.progress import Progress, no_progress

#: Tokens of a sequence beyond those of a text with its start: the text's last one and, where a gate
#: asks what would follow a whole text, that one; tables of positions have room for these.
_BEYOND = 2


def compile_text_to_text(
    folder: Path,
    given: Mapping[str, Any],
    asked: CompileOptions,
    progress: Progress = no_progress,
) -> Artifact:
    """Compile an encoder-decoder of text into an artifact and prove it against its source.

    Args:
        folder: Of the model, for transformers.
        given: ``inputs``: texts to judge it by (`optc.compiling.text_to_text.texts`); none are
            sentences that ship.
        asked: Of its options those count that do not concern generators of text.
        progress: Told what goes on.

    Raises:
        InputError: Bad usage, folder, recipe, text or output; nothing is left behind.
        UnsupportedError: Something in the model cannot be captured or lowered.
        UnavailableError: A package is missing.
        GateError: A gate failed; its ``details`` hold what was measured.
    """
    if other := next((name for name, value in given.items() if value and name != "inputs"), ""):
        raise InputError(
            "is not for models that turn texts into texts", where=other, hint="leave it out"
        )
    texts = Texts.of(given.get("inputs", ()), asked.calibration)
    return compile_parts(
        asked,
        TEXT_TO_TEXT,
        folder.resolve().name,
        "such as text2text-fp32 or text2text-int8",
        lambda: _parts(import_rewriter(folder), texts),
        progress,
    )


def _parts(imported: ImportedRewriter, texts: Texts) -> Parts:
    """Both halves; the tokenizer and the conventions are files of the artifact."""

    def write(writer: ArtifactWriter) -> TokenizerEntry:
        file = writer.subfolder("tokenizer") / "tokenizer.json"
        file.write_text(imported.tokenizer, "utf-8")
        conventions = json.dumps(to_builtins(imported.conventions), indent=1, sort_keys=True)
        (writer.folder / CONVENTIONS_FILE).write_text(conventions + "\n", "utf-8")
        return TokenizerEntry((TOKENIZER_FILE,), None, imported.conventions.ends, add_bos=False)

    return Parts(
        task=TEXT_TO_TEXT,
        name=imported.name,
        digest=imported.digest,
        graphs=imported.halves.by_role,
        judge=partial(judge_rewriter, imported, texts.judged),
        write=write,
        warnings=imported.warnings,
        step=StepPart(imported.halves.export_step, imported.conventions.positions + _BEYOND),
    )
