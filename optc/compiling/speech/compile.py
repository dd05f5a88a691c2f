"""One compile of a model of speech."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import TOKENIZER_FILE, TokenizerEntry
from optc.artifact.tasks.transcription import TRANSCRIPTION
from optc.artifact.writer import ArtifactWriter
from optc.compiling.parts.compile import Parts, compile_parts
from optc.compiling.parts.step import StepPart
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.speech.judge import judge_speech
from optc.compiling.speech.samples import give_speech_samples
from optc.compiling.speech.sounds import Sounds
from optc.errors import InputError
from optc.importer.tensors.speech import ImportedSpeech, import_speech
from optc.ir.pipeline.phase import Effect
from optc.runtime.audio.conventions import CONVENTIONS_FILE
from optc.system.options import AUTO, CompileOptions
from optc.system.progress import Progress, no_progress


def compile_speech(
    folder: Path,
    given: Mapping[str, Any],
    asked: CompileOptions,
    progress: Progress = no_progress,
) -> Artifact:
    """Compile a model of speech into an artifact and prove it against its source.

    Args:
        folder: Of the model, for transformers.
        given: ``inputs``: sounds to judge it by (`optc.compiling.speech.sounds.read_sounds`); none
            are those that ship.
        asked: Of its options those count that do not concern text.
        progress: Told what goes on.

    Raises:
        InputError: Bad usage, folder, recipe, sound or output; nothing is left behind.
        UnsupportedError: Something in the model cannot be captured or lowered.
        UnavailableError: A package is missing.
        GateError: A gate failed; its ``details`` hold what was measured.
    """
    if other := next((name for name, value in given.items() if value and name != "inputs"), ""):
        raise InputError("is not for models of speech", where=other, hint="leave it out")
    sounds = Sounds.of(given.get("inputs", ()), asked.calibration, learns=_learns(asked))
    return compile_parts(
        asked,
        TRANSCRIPTION,
        folder.resolve().name,
        "such as speech-fp32 or speech-int8",
        lambda: _parts(import_speech(folder), sounds),
        progress,
    )


def _learns(asked: CompileOptions) -> bool:
    """True if some sounds are kept for passes to learn from: those of any recipe of a ladder."""
    if asked.recipe == AUTO:
        return True
    return load_recipe(asked.recipe, sets=asked.set).pipeline.has(Effect.READS_SAMPLES)


def _parts(imported: ImportedSpeech, sounds: Sounds) -> Parts:
    """Both halves; the tokenizer and the conventions are files of the artifact."""

    def write(writer: ArtifactWriter) -> TokenizerEntry:
        file = writer.subfolder("tokenizer") / "tokenizer.json"
        file.write_text(imported.tokenizer, "utf-8")
        conventions = json.dumps(to_builtins(imported.conventions), indent=1, sort_keys=True)
        (writer.folder / CONVENTIONS_FILE).write_text(conventions + "\n", "utf-8")
        end = (imported.conventions.end,)
        return TokenizerEntry((TOKENIZER_FILE,), None, end, add_bos=False)

    learned = sounds.learned
    return Parts(
        task=TRANSCRIPTION,
        name=imported.name,
        digest=imported.digest,
        graphs=imported.halves.by_role,
        judge=partial(judge_speech, imported, sounds.judged),
        write=write,
        step=StepPart(imported.halves.export_step, imported.conventions.most_tokens),
        calibrate=partial(give_speech_samples, imported, learned) if learned else None,
    )
