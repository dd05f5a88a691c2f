"""One compile of a model of several parts: passes, build, gates, artifact."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import EngineEntry, GateEntry, Manifest, Source, TokenizerEntry
from optc.artifact.tasks.task import Task
from optc.artifact.writer import ArtifactWriter
from optc.backend import SharedWeights, TensorsBuilder
from optc.compiling.building.built_engine import BuiltEngine, engine_of
from optc.compiling.judging.judge import GatesFailedError, Judgement
from optc.compiling.recipes.recipe import Recipe
from optc.compiling.resolving.engines import EngineTarget, parse_engines
from optc.compiling.resolving.machine import package_versions
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.stages.assemble import pass_entry
from optc.compiling.tensors.assemble import assemble_report
from optc.errors import UnsupportedError
from optc.ir.pipeline.instruments import dump_to
from optc.system.options import CompileOptions
from optc.system.progress import Progress, telling

if TYPE_CHECKING:
    from optc.importer.tensors.imported import ImportedTensors
    from optc.ir.pipeline.record import PassRecord


@dataclass(frozen=True)
class Parts:
    """An imported model.

    Attributes:
        task: What it is for.
        name: Of the model.
        digest: sha256 in hex of all graphs and their weights.
        graphs: By role of the engine.
        judge: Measures the gates of built engines; the graphs as they were imported, by role, are
            for a baseline.
        write: Puts the artifact's other files in place; gives the tokenizer's entry, if it has one.
        warnings: What the user should know.
        calibrate: Gives passes what they learn from; None where they learn nothing.
    """

    task: Task
    name: str
    digest: str
    graphs: Mapping[str, ImportedTensors]
    judge: Callable[[Mapping[str, ir.Model], Sequence[BuiltEngine]], Judgement]
    write: Callable[[ArtifactWriter], TokenizerEntry | None]
    warnings: tuple[str, ...] = ()
    calibrate: Callable[[], None] | None = None


def tensor_engines(asked: CompileOptions, recipe: Recipe) -> Sequence[EngineTarget]:
    """The engines that are asked for.

    Raises:
        UnsupportedError: A backend builds none of named tensors.
    """
    engines = parse_engines(asked.backend, asked.target, recipe.backend)
    for one in engines:
        if not isinstance(one.backend, TensorsBuilder):
            raise UnsupportedError(
                "builds no engines of named tensors",
                where=f"backend {one.backend.name}",
                hint="--backend onnxruntime does",
            )
    return engines


@dataclass
class PartsCompile:
    """The stages, in order, and what they leave for the report."""

    asked: CompileOptions
    recipe: Recipe
    engines: Sequence[EngineTarget]
    writer: ArtifactWriter
    memory: PeakMemory
    progress: Progress
    started: float
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, load: Callable[[], Parts]) -> Artifact:
        """All stages; returns the written artifact."""
        with self._stage("import"):
            parts = load()
        originals = {role: one.model.clone() for role, one in parts.graphs.items()}
        if parts.calibrate is not None:
            with self._stage("calibration"):
                parts.calibrate()
        with self._stage("passes"), telling(self.progress):
            runs = [run for role, one in parts.graphs.items() for run in self._passes(role, one)]
        with self._stage("build"):
            built = [
                self._build(role, one, request)
                for request in self.engines
                for role, one in parts.graphs.items()
            ]
        with self._stage("gates"):
            judgement = parts.judge(originals, built)
        return self._finish(parts, runs, built, judgement)

    def _passes(self, role: str, part: ImportedTensors) -> Sequence[PassRecord]:
        folder = self.asked.dump_dir
        dumps = [] if folder is None else [dump_to(Path(folder) / role)]
        return self.recipe.pipeline.run(part.model, dumps)

    def _build(self, role: str, part: ImportedTensors, request: EngineTarget) -> BuiltEngine:
        started, name = time.perf_counter(), engine_of(role, request)
        if not isinstance(request.backend, TensorsBuilder):
            raise TypeError(f"{request.backend.name} was checked")
        folder = f"engines/{name}"
        model = part.model if request is self.engines[-1] else part.model.clone()
        place = self.writer.subfolder(folder)
        build = request.backend.build_tensors(model, part.interface, request.target, place)
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
        parts: Parts,
        runs: Sequence[PassRecord],
        built: Sequence[BuiltEngine],
        judgement: Judgement,
    ) -> Artifact:
        tokenizer = parts.write(self.writer)
        files = self.writer.hashed_files()
        copied = self.writer.store_once(files)
        manifest = Manifest(
            name=parts.name,
            task=parts.task,
            source=Source(parts.name, parts.digest, parts.task.name, {}),
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
        report["warnings"] = [*parts.warnings, *own, *told, *judgement.warnings]
        if judgement.failed:
            keep = self.asked.keep_failed
            kept = self.writer.keep_failed(manifest, report) if keep else None
            raise GatesFailedError(judgement, report, kept)
        return self.writer.commit(manifest, report)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self.progress(name, 0, 0)
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started
