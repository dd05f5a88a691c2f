"""The gates of engines of speech."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import tokenizers

from optc.artifact.tasks.transcription import ENCODER
from optc.artifact.writer import ArtifactWriter
from optc.compiling.building.built_engine import TARGET, BuiltEngine
from optc.compiling.judging.judge import Judgement, not_judged
from optc.compiling.parts.judging import SourceExecutable, baseline_of, unmeasured
from optc.proof.gates.measure import GateResult, is_open
from optc.proof.gates.speech.measure import measure_transcriber
from optc.runtime.audio.wav import Sound
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.speech.transcriber import Transcriber
from optc.runtime.tensors.engine import open_folder
from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import usable_threads
from optc.system.options import CompileOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.compiling.recipes.recipe import Recipe
    from optc.importer.tensors.speech import ImportedSpeech


def judge_speech(
    recipe: Recipe,
    sounds: Sequence[Sound],
    writer: ArtifactWriter,
    asked: CompileOptions,
    imported: ImportedSpeech,
    originals: Mapping[str, ir.Model],
    engines: Sequence[BuiltEngine],
) -> Judgement:
    """Measure the recipe's gates through every pair of engines that runs here.

    Args:
        recipe: Its gates count.
        sounds: To write down.
        writer: Of the artifact.
        asked: Whether gates are wanted, and may be left unmeasured.
        imported: With the source's own outputs.
        originals: The graphs of encoder and decoder as imported, by role, for the baseline; they
            are built, and so changed.
        engines: Built under ``writer``; an encoder stands before its decoder.
    """
    targets = [built for built in engines if built.entry.role == TARGET]
    if asked.no_gates:
        return not_judged(recipe.gates, targets)
    threads = usable_threads()
    halves = (imported.halves.encoder, imported.halves.decoder)
    reference = source_transcriber(imported)
    verdicts: list[GateResult] = []
    with writer.scratch() as folder:
        baseline = _transcriber(
            imported,
            [
                baseline_of(originals[role], half, folder / role, threads)
                for role, half in zip((ENCODER, TARGET), halves, strict=True)
            ],
        )
        for built in targets:
            if reason := this_machine().misfit(built.request.target):
                verdicts += unmeasured(recipe.gates, reason, built.entry.name)
                continue
            pair = [one for one in engines if one.request is built.request]
            opened = [
                open_folder(writer.folder / one.entry.folder, one.entry, threads) for one in pair
            ]
            with _transcriber(imported, opened) as found:
                verdicts += measure_transcriber(
                    found, reference, baseline, sounds, recipe.gates, built.entry.name
                )
        baseline.close()
    strict = not (asked.allow_unmeasured or asked.keep_failed)
    failed = [one for one in verdicts if one.passed is False or (strict and is_open(one))]
    shown = tuple(one for one in verdicts if one.value is not None or one.bound is not None)
    facts = {
        "samples": len(sounds),
        "seconds": sum(sound.seconds for sound in sounds),
        "reference": "source",
    }
    return Judgement(shown, measured=True, failed=tuple(failed), facts=facts)


def source_transcriber(imported: ImportedSpeech) -> Transcriber:
    """The source itself in the loop that engines run in."""
    halves = (imported.halves.encoder, imported.halves.decoder)
    return _transcriber(imported, [SourceExecutable(half) for half in halves])


def _transcriber(imported: ImportedSpeech, engines: Sequence[TensorsExecutable]) -> Transcriber:
    tokenizer = tokenizers.Tokenizer.from_str(imported.tokenizer)
    return Transcriber(engines[0], engines[1], imported.conventions, tokenizer, {})
