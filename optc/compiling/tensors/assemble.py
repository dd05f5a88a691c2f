"""Manifest and report of a compile of a model of named tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from optc.artifact.manifest import FileEntry, GateEntry, Manifest, Source, TokenizerEntry
from optc.artifact.tasks.task import Task
from optc.artifact.tasks.tensors import TENSORS_NAME
from optc.compiling.building.built_engine import BuiltEngine
from optc.compiling.judging.judge import Judgement
from optc.compiling.resolving.machine import machine_facts, package_versions
from optc.compiling.stages.assemble import pass_entry
from optc.compiling.stages.storage import engine_reports, storage_report

if TYPE_CHECKING:
    from optc.compiling.recipes.recipe import Recipe
    from optc.importer.tensors.imported import ImportedTensors
    from optc.ir.pipeline.record import PassRecord


@dataclass(frozen=True)
class Identity:
    """The model that an artifact is made of.

    Attributes:
        name: Of the model.
        digest: sha256 in hex of its graphs and their weights.
        task: What it is for.
        family: Of the source, as the manifest has it.
    """

    name: str
    digest: str
    task: Task
    family: str

    @classmethod
    def of_tensors(cls, imported: ImportedTensors) -> Identity:
        """A model of one graph."""
        return cls(imported.name, imported.digest, imported.task, TENSORS_NAME)


def assemble_manifest(
    recipe: Recipe,
    model: Identity,
    runs: Sequence[PassRecord],
    engines: Sequence[BuiltEngine],
    judgement: Judgement,
    files: tuple[FileEntry, ...],
    tokenizer: TokenizerEntry | None = None,
) -> Manifest:
    """The manifest: what identifies the artifact, nothing that was measured in time."""
    return Manifest(
        name=model.name,
        task=model.task,
        source=Source(model.name, model.digest, model.family, {}),
        recipe=recipe.to_json(),
        pipeline=",".join(run.spec for run in runs),
        passes=tuple(map(pass_entry, runs)),
        engines=tuple(built.entry for built in engines),
        tokenizer=tokenizer,
        files=files,
        gated=judgement.measured,
        gates=tuple(GateEntry(g.name, g.bound, g.passed, g.engine) for g in judgement.gates),
        packages=package_versions(),
        generation={},
    )


def assemble_report(
    engines: Sequence[BuiltEngine],
    runs: Sequence[PassRecord],
    judgement: Judgement,
    files: tuple[FileEntry, ...],
    copied_bytes: int,
    seconds: dict[str, float],
) -> dict[str, Any]:
    """The report: figures, timings and facts of this machine, outside the digest."""
    return {
        "schema": "optc.report.v1",
        "passes": [run.to_json() for run in runs],
        "gates": [asdict(gate) for gate in judgement.gates],
        "evaluation": {},
        "samples": judgement.facts,
        "tensors": [],
        "seconds": seconds["total"],
        "stages": {name: value for name, value in seconds.items() if name != "total"},
        "machine": machine_facts(),
        "engines": engine_reports(engines, files),
        "storage": storage_report(engines, files, copied_bytes, 0),
    }
