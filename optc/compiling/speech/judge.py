"""The gates of engines of speech."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers

from optc import registry
from optc.artifact.writer import ArtifactWriter
from optc.backend import TensorsBuilder
from optc.compiling.building.built_engine import TARGET, BuiltEngine
from optc.compiling.judging.judge import Judgement, not_judged
from optc.errors import UnsupportedError
from optc.proof.gates.measure import GateResult, is_open
from optc.proof.gates.speech.measure import measure_transcriber
from optc.runtime.audio.wav import Sound
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.speech.transcriber import Transcriber
from optc.runtime.tensors.engine import open_folder
from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import parse_target, usable_threads
from optc.system.options import CompileOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.compiling.recipes.recipe import Recipe
    from optc.importer.tensors.imported import ImportedTensors
    from optc.importer.tensors.speech import ImportedSpeech


def judge_speech(
    recipe: Recipe,
    imported: ImportedSpeech,
    originals: Sequence[ir.Model],
    sounds: Sequence[Sound],
    engines: Sequence[BuiltEngine],
    writer: ArtifactWriter,
    asked: CompileOptions,
) -> Judgement:
    """Measure the recipe's gates through every pair of engines that runs here.

    Args:
        recipe: Its gates count.
        imported: With the source's own outputs.
        originals: The graphs of encoder and decoder as imported, for the baseline; they are built,
            and so changed.
        sounds: To write down.
        engines: Built under ``writer``; an encoder stands before its decoder.
        writer: Of the artifact.
        asked: Whether gates are wanted, and may be left unmeasured.
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
                _baseline(model, half, folder / str(index), threads)
                for index, (model, half) in enumerate(zip(originals, halves, strict=True))
            ],
        )
        for built in targets:
            if reason := this_machine().misfit(built.request.target):
                verdicts += _unmeasured(recipe.gates, reason, built.entry.name)
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


class _Source:
    """The source's own outputs as an executable."""

    batch_invariant = False

    def __init__(self, half: ImportedTensors) -> None:
        if half.reference is None:
            raise ValueError(f"{half.name} came without its source")
        self._run = half.reference

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name."""
        return dict(self._run(inputs))

    def close(self) -> None:
        """Nothing is held."""


def source_transcriber(imported: ImportedSpeech) -> Transcriber:
    """The source itself in the loop that engines run in."""
    halves = (imported.halves.encoder, imported.halves.decoder)
    return _transcriber(imported, [_Source(half) for half in halves])


def _transcriber(imported: ImportedSpeech, engines: Sequence[TensorsExecutable]) -> Transcriber:
    tokenizer = tokenizers.Tokenizer.from_str(imported.tokenizer)
    return Transcriber(engines[0], engines[1], imported.conventions, tokenizer, {})


def _baseline(
    model: ir.Model, half: ImportedTensors, folder: Path, threads: int
) -> TensorsExecutable:
    """The graph as it was imported, in ONNX Runtime on the CPU."""
    backend = registry.backend("onnxruntime")
    if not isinstance(backend, TensorsBuilder):
        raise UnsupportedError("runs no models of named tensors", where="backend onnxruntime")
    folder.mkdir()
    build = backend.build_tensors(model, half.interface, parse_target("native"), folder)
    return backend.load_tensors(folder, half.interface, build.backend_data, threads)


def _unmeasured(bounds: Mapping[str, float | None], reason: str, engine: str) -> list[GateResult]:
    return [
        GateResult(name, None, bound, None, "none", reason, engine)
        for name, bound in bounds.items()
    ]
