"""The common part of compiles that build engines of named tensors: their stages, and the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import Manifest, TokenizerEntry
from optc.artifact.tasks.task import Task
from optc.artifact.writer import ArtifactWriter
from optc.backend import Backend, SharedWeights, TensorsBuilder
from optc.compiling.building.built_engine import BuiltEngine, entry_of, folder_of
from optc.compiling.judging.judge import GatesFailedError, Judgement
from optc.compiling.recipes.recipe import Recipe
from optc.compiling.resolving.engines import EngineTarget
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.tensors.assemble import Identity, assemble_manifest, assemble_report
from optc.errors import UnsupportedError
from optc.ir.pipeline.instruments import dump_to
from optc.system.options import CompileOptions
from optc.system.progress import Progress

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.importer.tensors.imported import ImportedTensors
    from optc.ir.pipeline.record import PassRecord


@dataclass
class Stages:
    """A compile by one recipe: what it is made with, and the seconds of its stages."""

    asked: CompileOptions
    recipe: Recipe
    engines: Sequence[EngineTarget]
    writer: ArtifactWriter
    memory: PeakMemory
    progress: Progress
    started: float
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """A stage, which is told and timed."""
        self.progress(name, 0, 0)
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def run_passes(self, model: ir.Model, task: Task, part: str = "") -> list[PassRecord]:
        """Run the recipe's passes, which know the bounds of gates of the ``task``; graphs are
        dumped if they are asked for, those of a ``part`` in a folder of its own."""
        folder = self.asked.dump_dir
        dumps = [] if folder is None else [dump_to(Path(folder) / part)]
        gates = self.recipe.gates.items()
        bounds = {name: bound for name, bound in gates if bound is not None and name in task.gates}
        return list(self.recipe.pipeline.run(model, dumps, bounds=bounds))

    def build_engine(
        self,
        part: ImportedTensors,
        request: EngineTarget,
        name: str,
        role: str,
        backend: Backend | None = None,
    ) -> BuiltEngine:
        """Build one engine of a graph, which the last request changes, by another ``backend`` than
        the request's if one is given.

        Raises:
            UnsupportedError: The backend builds none, or does not take the graph.
        """
        started, builder = time.perf_counter(), backend or request.backend
        if not isinstance(builder, TensorsBuilder):
            raise UnsupportedError(
                "builds no engines of models of named tensors",
                where=f"backend {builder.name}",
                hint="--backend onnxruntime does",
            )
        last = request is self.engines[-1]
        model = part.model if last else part.model.clone()
        place = self.writer.subfolder(folder_of(name))
        build = builder.build_tensors(model, part.interface, request.target, place)
        entry = entry_of(name, role, builder, request.target, build)
        weights = SharedWeights(f"../{name}", build.backend_data)
        return BuiltEngine(request, entry, build, weights, time.perf_counter() - started)

    def commit(
        self,
        identity: Identity,
        tokenizer: TokenizerEntry | None,
        runs: Sequence[PassRecord],
        built: Sequence[BuiltEngine],
        judgement: Judgement,
        warnings: Sequence[str],
        **more: Any,
    ) -> Artifact:
        """Write manifest and report, the latter with ``more``, and put the artifact in its place.

        Raises:
            GateError: A gate failed.
        """
        files = self.writer.hashed_files()
        copied = self.writer.store_once(files)
        entries = (files, tokenizer)
        manifest = assemble_manifest(self.recipe, identity, runs, built, judgement, *entries)
        self.memory.sample()
        self.seconds["total"] = time.perf_counter() - self.started
        report = assemble_report(built, runs, judgement, files, copied, self.seconds)
        report["peak_anon_bytes"] = self.memory.peak_bytes
        told = [f"pass {run.name}: {text}" for run in runs for text in run.report.warnings]
        own = [run.warning for run in runs if run.warning]
        report["warnings"] = [*warnings, *own, *told, *judgement.warnings]
        report |= more
        if judgement.failed:
            kept = self._kept(manifest, report)
            raise GatesFailedError(judgement, report, kept)
        return self.writer.commit(manifest, report)

    def _kept(self, manifest: Manifest, report: dict[str, Any]) -> Path | None:
        return self.writer.keep_failed(manifest, report) if self.asked.keep_failed else None
