"""The last stage of every compile: manifest, report, and the artifact in its place."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import FileEntry, GateEntry, Manifest, PassEntry, Source, TokenizerEntry
from optc.artifact.tasks.task import Task
from optc.artifact.writer import ArtifactWriter
from optc.compiling.judging.judge import GatesFailedError, Judgement
from optc.compiling.recipes.recipe import Recipe
from optc.compiling.resolving.machine import machine_facts, package_versions
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.stages.row import BuiltEngines, Done, Stage
from optc.compiling.stages.storage import engine_reports, storage_report
from optc.ir.pipeline.phase import Effect
from optc.ir.pipeline.record import PassRecord
from optc.system.options import CompileOptions


@dataclass(frozen=True)
class Identity:
    """The model that an artifact is made of.

    Attributes:
        task: What it is for.
        source: As the manifest has it.
        generation: Defaults of its artifact.
        source_bytes: Of its checkpoint; 0 where that is not known.
    """

    task: Task
    source: Source
    generation: Mapping[str, Any] = field(default_factory=dict)
    source_bytes: int = 0


@dataclass(frozen=True)
class PassRuns:
    """Records of passes, in order, and the pipeline as text."""

    records: Sequence[PassRecord]
    spec: str


class Write(Stage):
    """Writes the artifact; raises `GatesFailedError` where a gate failed."""

    name: ClassVar[str] = "write"

    def run(self, done: Done) -> Artifact:
        """See `Stage`."""
        writer, judgement = done[ArtifactWriter], done[Judgement]
        files = writer.hashed_files()
        copied = writer.store_once(files)
        manifest = assemble_manifest(done, files)
        done[PeakMemory].sample()
        done.warnings += judgement.warnings
        report = assemble_report(done, files, copied)
        if not judgement.failed:
            return writer.commit(manifest, report)
        keep = done[CompileOptions].keep_failed
        kept = writer.keep_failed(manifest, report) if keep else None
        raise GatesFailedError(judgement, report, kept, self.advice(done))

    def advice(self, done: Done) -> str:
        """Advice to the user where gates failed, beyond that of `GatesFailedError`."""
        return ""


def assemble_manifest(done: Done, files: tuple[FileEntry, ...]) -> Manifest:
    """The manifest: what identifies the artifact, nothing that was measured in time."""
    model, runs, judgement = done[Identity], done[PassRuns], done[Judgement]
    return Manifest(
        name=model.source.name,
        task=model.task,
        source=model.source,
        recipe=done[Recipe].to_json(),
        pipeline=runs.spec,
        passes=tuple(map(pass_entry, runs.records)),
        engines=tuple(one.entry for one in done[BuiltEngines].all),
        tokenizer=done.get(TokenizerEntry),
        files=files,
        gated=judgement.measured,
        gates=tuple(
            GateEntry(g.name, g.bound, g.passed, g.engine, g.measured_on == "lowered-onnx")
            for g in judgement.gates
        ),
        packages=package_versions(),
        generation=dict(model.generation),
    )


def assemble_report(done: Done, files: tuple[FileEntry, ...], copied_bytes: int) -> dict[str, Any]:
    """The report: figures, timings and facts of this machine, outside the digest."""
    engines, judgement = done[BuiltEngines].all, done[Judgement]
    return {
        "schema": "optc.report.v1",
        "passes": [run.to_json() for run in done[PassRuns].records],
        "gates": [asdict(gate) for gate in judgement.gates],
        "peak_anon_bytes": done[PeakMemory].peak_bytes,
        "seconds": time.perf_counter() - done.started,
        "stages": dict(done.seconds),
        "machine": machine_facts(),
        "engines": engine_reports(engines, files),
        "storage": storage_report(engines, files, copied_bytes, done[Identity].source_bytes),
        "warnings": list(done.warnings),
        **done.report,
    }


def pass_entry(run: PassRecord) -> PassEntry:
    """The manifest's entry of a pass that ran."""
    done = bool(run.report.count)
    return PassEntry(
        run.name,
        run.spec,
        run.report.count,
        dict(run.report.details),
        removes=run.removes if done else "",
        leaves_class=run.leaves_class if done else "",
        moves_weights=done and bool(run.effects & Effect.MOVES_WEIGHTS),
    )
