"""Manifest and report of a compile from what its stages left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from optc.artifact.manifest import FileEntry, GateEntry, Manifest, PassEntry, Source, TokenizerEntry
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.compiling.building.built_engine import BuiltEngine
from optc.compiling.judging.judge import Judgement
from optc.compiling.resolving.machine import machine_facts, package_versions
from optc.compiling.resolving.options import ResolvedOptions
from optc.compiling.resolving.tensor_kinds import tensor_kinds
from optc.compiling.stages.generation import generation_settings
from optc.ir.pipeline.phase import Effect
from optc.ir.pipeline.record import PassRecord

if TYPE_CHECKING:
    from optc.compiling.drafts.draft import Draft
    from optc.compiling.lowering.lowering import Lowered
    from optc.importer.imported import ImportedModel


def assemble_manifest(
    options: ResolvedOptions,
    imported: ImportedModel,
    lowered: Lowered,
    engines: Sequence[BuiltEngine],
    tokenizer: TokenizerEntry | None,
    judgement: Judgement,
    files: tuple[FileEntry, ...],
) -> Manifest:
    """The manifest: what identifies the artifact, nothing that was measured in time."""
    return Manifest(
        name=imported.name,
        task=TEXT_GENERATION,
        source=Source(imported.name, imported.source_digest, imported.family, imported.config),
        recipe=options.recipe.to_json(),
        pipeline=lowered.spec,
        passes=tuple(map(pass_entry, lowered.runs)),
        engines=tuple(built.entry for built in engines),
        tokenizer=tokenizer,
        files=files,
        gated=judgement.measured,
        gates=tuple(
            GateEntry(g.name, g.bound, g.passed, g.engine, g.measured_on == "lowered-onnx")
            for g in judgement.gates
        ),
        packages=package_versions(),
        generation=generation_settings(imported).defaults,
    )


def assemble_report(
    options: ResolvedOptions,
    imported: ImportedModel,
    lowered: Lowered,
    engines: Sequence[BuiltEngine],
    drafts: Sequence[Draft],
    judgement: Judgement,
    seconds: dict[str, float],
    peak_anon_bytes: int,
) -> dict[str, Any]:
    """The report: figures, timings and facts of this machine, outside the digest."""
    stages = {name: value for name, value in seconds.items() if name != "total"}
    return {
        "schema": "optc.report.v1",
        "passes": [run.to_json() for run in lowered.runs],
        "gates": [asdict(gate) for gate in judgement.gates],
        "evaluation": judgement.facts,
        "tensors": tensor_kinds(lowered.model),
        "peak_anon_bytes": peak_anon_bytes,
        "seconds": seconds["total"],
        "stages": stages,
        "machine": machine_facts(),
        "warnings": [
            *options.warnings,
            *imported.warnings,
            *lowered.warnings,
            *(text for built in engines for text in built.build.warnings),
            *(text for draft in drafts for text in draft.warnings),
            *judgement.warnings,
        ],
        **{draft.role: draft.report for draft in drafts},
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
