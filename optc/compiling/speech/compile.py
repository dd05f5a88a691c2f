"""A model of speech to be compiled."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from optc.artifact.manifest import TokenizerEntry
from optc.artifact.tasks.transcription import TRANSCRIPTION
from optc.artifact.writer import ArtifactWriter
from optc.compiling.parts.given import check_given
from optc.compiling.parts.parts import (
    Parts,
    PartsSource,
    write_conventions,
    write_tokenizer,
)
from optc.compiling.parts.step import StepPart
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.speech.judge import SpeechJudge
from optc.compiling.speech.samples import give_speech_samples
from optc.compiling.speech.sounds import Sounds
from optc.importer.tensors.speech import ImportedSpeech, import_speech
from optc.ir.pipeline.phase import Effect
from optc.runtime.audio.conventions import CONVENTIONS_FILE
from optc.system.options import AUTO, CompileOptions


def speech_source(folder: Path, given: Mapping[str, Any], asked: CompileOptions) -> PartsSource:
    """A model of speech.

    Args:
        folder: Of the model, for transformers.
        given: ``inputs``: sounds to judge it by (`optc.compiling.speech.sounds.read_sounds`); none
            are those that ship.
        asked: Of its options those count that do not concern text.

    Raises:
        InputError: Bad usage, or a bad sound.
    """
    inputs = check_given(given, "models of speech")
    sounds = Sounds.of(inputs, asked.calibration, learns=_learns(asked))
    return PartsSource(
        kind=TRANSCRIPTION.name,
        name=folder.resolve().name,
        load=lambda: _parts(import_speech(folder), sounds),
        hint="such as speech-fp32 or speech-int8",
        task=TRANSCRIPTION,
    )


def _learns(asked: CompileOptions) -> bool:
    """True if some sounds are kept for passes to learn from: those of any recipe of a ladder."""
    if asked.recipe == AUTO:
        return True
    return load_recipe(asked.recipe, sets=asked.set).pipeline.has(Effect.READS_SAMPLES)


def _parts(imported: ImportedSpeech, sounds: Sounds) -> Parts:
    """Encoder and decoder; the tokenizer and the conventions are files of the artifact."""

    def write(writer: ArtifactWriter) -> TokenizerEntry | None:
        write_conventions(writer, CONVENTIONS_FILE, imported.conventions)
        return write_tokenizer(writer, imported.tokenizer, [imported.conventions.end])

    learned = sounds.learned
    return Parts(
        task=TRANSCRIPTION,
        name=imported.name,
        digest=imported.digest,
        graphs=imported.models.by_role,
        judge=lambda recipe: SpeechJudge(imported, sounds.judged),
        write=write,
        step=StepPart(imported.models.export_step, imported.conventions.most_tokens),
        calibrate=cache(partial(give_speech_samples, imported, learned)) if learned else None,
    )
