"""One compile of a model of speech: import, passes, build, gates, artifact."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import (
    TOKENIZER_FILE,
    EngineEntry,
    GateEntry,
    Manifest,
    Source,
    TokenizerEntry,
)
from optc.artifact.store.local import store_root
from optc.artifact.tasks.transcription import ENCODER, TRANSCRIPTION, TRANSCRIPTION_NAME
from optc.artifact.writer import ArtifactWriter
from optc.backend import SharedWeights, TensorsBuilder
from optc.compiling.building.built_engine import TARGET, BuiltEngine, engine_of
from optc.compiling.judging.judge import GatesFailedError, Judgement
from optc.compiling.recipes.recipe import Recipe
from optc.compiling.resolving.engines import EngineTarget, parse_engines
from optc.compiling.resolving.machine import package_versions
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.resolving.options import limit_of
from optc.compiling.speech.judge import judge_speech
from optc.compiling.speech.samples import give_speech_samples
from optc.compiling.speech.sounds import Sounds
from optc.compiling.stages.assemble import pass_entry
from optc.compiling.tensors.assemble import assemble_report
from optc.compiling.tensors.compile import load_tensor_recipe
from optc.errors import InputError, UnsupportedError
from optc.importer.tensors.speech import ImportedSpeech, import_speech
from optc.ir.pipeline.instruments import dump_to
from optc.ir.pipeline.phase import Effect
from optc.runtime.audio.conventions import CONVENTIONS_FILE
from optc.system.options import CompileOptions
from optc.system.progress import Progress, no_progress, telling

if TYPE_CHECKING:
    from optc.importer.tensors.imported import ImportedTensors
    from optc.ir.pipeline.record import PassRecord


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
    started = time.perf_counter()
    if other := next((name for name, value in given.items() if value and name != "inputs"), ""):
        raise InputError("is not for models of speech", where=other, hint="leave it out")
    recipe = load_tensor_recipe(asked, (TRANSCRIPTION_NAME,), "such as speech-fp32 or speech-int8")
    engines = parse_engines(asked.backend, asked.target, recipe.backend)
    for one in engines:
        if not isinstance(one.backend, TensorsBuilder):
            raise UnsupportedError(
                "builds no engines of models of speech",
                where=f"backend {one.backend.name}",
                hint="--backend onnxruntime does",
            )
    name = folder.resolve().name
    output = asked.output or store_root() / f"{name}-{recipe.name}"
    learns = recipe.pipeline.has(Effect.READS_SAMPLES)
    sounds = Sounds.of(given.get("inputs", ()), asked.calibration, learns=learns)
    with (
        PeakMemory(limit_of(asked.max_ram)) as memory,
        ArtifactWriter(output, force=asked.force) as writer,
    ):
        compiling = _Compile(asked, recipe, engines, writer, memory, progress, started)
        return compiling.run(folder, sounds)


@dataclass
class _Compile:
    """The stages, in order, and what they leave for the report."""

    asked: CompileOptions
    recipe: Recipe
    engines: Sequence[EngineTarget]
    writer: ArtifactWriter
    memory: PeakMemory
    progress: Progress
    started: float
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, folder: Path, sounds: Sounds) -> Artifact:
        """All stages; returns the written artifact."""
        with self._stage("import"):
            imported = import_speech(folder)
        halves = {ENCODER: imported.halves.encoder, TARGET: imported.halves.decoder}
        originals = [half.model.clone() for half in halves.values()]
        if sounds.learned:
            with self._stage("calibration"):
                give_speech_samples(imported, sounds.learned)
        with self._stage("passes"), telling(self.progress):
            runs = [run for role, half in halves.items() for run in self._passes(role, half)]
        with self._stage("build"):
            built = [
                self._build(role, half, request)
                for request in self.engines
                for role, half in halves.items()
            ]
        with self._stage("gates"):
            judgement = judge_speech(
                self.recipe, imported, originals, sounds.judged, built, self.writer, self.asked
            )
        return self._finish(imported, runs, built, judgement)

    def _passes(self, role: str, half: ImportedTensors) -> Sequence[PassRecord]:
        folder = self.asked.dump_dir
        dumps = [] if folder is None else [dump_to(Path(folder) / role)]
        return self.recipe.pipeline.run(half.model, dumps)

    def _build(self, role: str, half: ImportedTensors, request: EngineTarget) -> BuiltEngine:
        started, name = time.perf_counter(), engine_of(role, request)
        if not isinstance(request.backend, TensorsBuilder):
            raise TypeError(f"{request.backend.name} was checked")
        folder = f"engines/{name}"
        model = half.model if request is self.engines[-1] else half.model.clone()
        place = self.writer.subfolder(folder)
        build = request.backend.build_tensors(model, half.interface, request.target, place)
        entry = EngineEntry(
            name=name,
            role=role,
            backend=request.backend.name,
            target=request.target,
            requires=build.requires,
            interface=build.spec,
            data=build.backend_data,
            folder=folder,
            files=build.files,
        )
        weights = SharedWeights(f"../{name}", build.backend_data)
        return BuiltEngine(request, entry, build, weights, time.perf_counter() - started)

    def _finish(
        self,
        imported: ImportedSpeech,
        runs: Sequence[PassRecord],
        built: Sequence[BuiltEngine],
        judgement: Judgement,
    ) -> Artifact:
        tokenizer = self._texts(imported)
        files = self.writer.hashed_files()
        copied = self.writer.store_once(files)
        manifest = Manifest(
            name=imported.name,
            task=TRANSCRIPTION,
            source=Source(imported.name, imported.digest, TRANSCRIPTION_NAME, {}),
            recipe=self.recipe.to_json(),
            pipeline=",".join(run.spec for run in runs),
            passes=tuple(map(pass_entry, runs)),
            engines=tuple(one.entry for one in built),
            tokenizer=tokenizer,
            files=files,
            gated=judgement.measured,
            gates=tuple(GateEntry(g.name, g.bound, g.passed, g.engine) for g in judgement.gates),
            packages=package_versions(),
            generation={},
        )
        self.memory.sample()
        self.seconds["total"] = time.perf_counter() - self.started
        report = assemble_report(built, runs, judgement, files, copied, self.seconds)
        report["peak_anon_bytes"] = self.memory.peak_bytes
        told = [f"pass {run.name}: {text}" for run in runs for text in run.report.warnings]
        own = [run.warning for run in runs if run.warning]
        report["warnings"] = [*own, *told, *judgement.warnings]
        if judgement.failed:
            keep = self.asked.keep_failed
            kept = self.writer.keep_failed(manifest, report) if keep else None
            raise GatesFailedError(judgement, report, kept)
        return self.writer.commit(manifest, report)

    def _texts(self, imported: ImportedSpeech) -> TokenizerEntry:
        """Write tokenizer and conventions."""
        (self.writer.subfolder("tokenizer") / "tokenizer.json").write_text(
            imported.tokenizer, "utf-8"
        )
        conventions = json.dumps(to_builtins(imported.conventions), indent=1, sort_keys=True)
        (self.writer.folder / CONVENTIONS_FILE).write_text(conventions + "\n", "utf-8")
        end = (imported.conventions.end,)
        return TokenizerEntry((TOKENIZER_FILE,), None, end, add_bos=False)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self.progress(name, 0, 0)
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started
