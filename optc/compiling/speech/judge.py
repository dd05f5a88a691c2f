"""The gates of engines of speech."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import tokenizers

from optc.artifact.tasks.task import ENCODER
from optc.artifact.writer import ArtifactWriter
from optc.compiling.building.built_engine import TARGET, BuiltEngine
from optc.compiling.judging.judge import Judgement
from optc.compiling.parts.judging import Executables, Measuring, judge_parts, source_of
from optc.proof.gates.measure import GateResult
from optc.proof.gates.speech.measure import measure_transcriber
from optc.runtime.audio.wav import Sound
from optc.runtime.encoded.open import as_decoder, as_tensors, open_engine
from optc.runtime.encoded.step_decoder import StepDecoder
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.speech.transcriber import Transcriber
from optc.system.options import CompileOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.compiling.recipes.recipe import Recipe
    from optc.importer.tensors.speech import ImportedSpeech

#: Opened engines by role.
Engines = Mapping[str, TensorsExecutable | StepDecoder]


def judge_speech(
    imported: ImportedSpeech,
    sounds: Sequence[Sound],
    recipe: Recipe,
    writer: ArtifactWriter,
    asked: CompileOptions,
    originals: Mapping[str, ir.Model],
    engines: Sequence[BuiltEngine],
) -> Judgement:
    """Measure the recipe's gates through every pair of engines that runs here.

    Args:
        imported: With the source's own outputs.
        sounds: To write down.
        recipe: Its gates count.
        writer: Of the artifact.
        asked: Whether gates are wanted, and may be left unmeasured.
        originals: The graphs of encoder and decoder as imported, by role, for the baseline; they
            are built, and so changed.
        engines: Built under ``writer``; an encoder stands before its decoder.
    """
    reference = source_transcriber(imported)

    def measure(found: Engines, baseline: Executables, name: str) -> Sequence[GateResult]:
        both = [_transcriber(imported, one) for one in (found, baseline)]
        return measure_transcriber(both[0], reference, both[1], sounds, recipe.gates, name)

    facts = {"samples": len(sounds), "seconds": sum(sound.seconds for sound in sounds)}
    return judge_parts(
        recipe,
        writer,
        asked,
        imported.halves.by_role,
        originals,
        engines,
        Measuring(open_engine, measure),
        facts,
    )


def source_transcriber(imported: ImportedSpeech) -> Transcriber:
    """The source itself in the loop that engines run in."""
    return _transcriber(imported, source_of(imported.halves.by_role))


def _transcriber(imported: ImportedSpeech, engines: Engines) -> Transcriber:
    tokenizer = tokenizers.Tokenizer.from_str(imported.tokenizer)
    encoder, decoder = as_tensors(engines[ENCODER]), as_decoder(engines[TARGET])
    return Transcriber(encoder, decoder, imported.conventions, tokenizer, {})
