"""``optc inspect``: what an artifact is, how it was made and what its gates measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optc.cli.artifact_path import ARTIFACT
from optc.cli.gates_line import gates_line
from optc.cli.judged.decisions import decision_tables
from optc.cli.output import byte_text, json_option, print_json, print_warnings, show, table
from optc.cli.tables import (
    activations_tables,
    contexts_tables,
    formats_tables,
    gates_tables,
    passes_table,
)
from optc.proof.conditions.decisions import decisions_of
from optc.system.units import kv_text

if TYPE_CHECKING:
    from rich.table import Table

    from optc.artifact.artifact import Artifact
    from optc.artifact.manifest import Manifest


@click.command("inspect", short_help="Show what an artifact is and how it was made.")
@click.argument("artifact", type=ARTIFACT)
@json_option
def command(artifact: Path, as_json: bool) -> None:
    """Show source, recipe, passes, engines, files and gates of ARTIFACT."""
    from optc.artifact.artifact import Artifact

    opened = Artifact.open(artifact, verify="size")
    report, warnings = _report(opened)
    reasons = _reasons(opened.manifest)
    if as_json:
        manifest = opened.manifest.to_json()
        values = {"artifact": str(artifact), "digest": opened.digest}
        here = [{"name": n, "loads_here": not why, "reason": why} for n, why in reasons.items()]
        print_json(
            "inspect", {**values, "manifest": manifest, "report": report, "engines": here}, warnings
        )
        return
    show(
        _identity(opened, report),
        _engines(opened.manifest, reasons),
        passes_table(report.get("passes", [])),
        *formats_tables(report.get("passes", [])),
        *activations_tables(report.get("passes", [])),
        *gates_tables(report.get("gates", [])),
        *contexts_tables(report.get("evaluation", {})),
        *decision_tables(decisions_of(report.get("evaluation", {}))),
    )
    print_warnings(warnings)


def _report(artifact: Artifact) -> tuple[dict[str, Any], list[str]]:
    """The report, and a warning where it is damaged: what the artifact is stands in the
    manifest."""
    from optc.errors import ArtifactError

    try:
        return artifact.report(), []
    except ArtifactError as error:
        return {}, [f"the report is left out: {error.render()}"]


def _identity(artifact: Artifact, report: Mapping[str, Any]) -> Table:
    manifest = artifact.manifest
    source = manifest.source
    size = sum({entry.sha256: entry.bytes for entry in manifest.files}.values())  # equal ones once
    rows = table(str(artifact.path), "", "")
    rows.show_header = False
    facts: dict[str, Any] = {
        "model": f"{manifest.name} ({source.family})",
        "task": manifest.task.name,
        "recipe": manifest.recipe.get("name", ""),
        "pipeline": manifest.pipeline,
        "files": f"{len(manifest.files)}, {byte_text(size)}",
        "gates": gates_line(manifest, report),
        **({"defaults": _defaults(manifest)} if manifest.generation else {}),
        "source": source.digest,
        "digest": manifest.digest,
    }
    for key, value in facts.items():
        rows.add_row(key, str(value))
    return rows


def _defaults(manifest: Manifest) -> str:
    """The settings that continue requests which state nothing else."""
    return ", ".join(f"{name}={value!r}" for name, value in sorted(manifest.generation.items()))


def _reasons(manifest: Manifest) -> dict[str, str]:
    """Why each engine cannot be loaded here, by name; empty where it can."""
    from optc.artifact.choose import reason_against
    from optc.artifact.tasks import shown
    from optc.system.hardware.machine import this_machine

    here, unknown = this_machine(), shown.reason_against(manifest.task)
    return {one.name: unknown or reason_against(one, here) for one in manifest.engines}


def _engines(manifest: Manifest, reasons: dict[str, str]) -> Table:
    columns = ("name", "role", "backend", "target", "context", "KV a token", "loads here")
    rows = table("engines", *columns)
    for engine in manifest.engines:
        reason, step = reasons[engine.name], engine.step
        rows.add_row(
            engine.name,
            engine.role,
            engine.backend,
            engine.target.name,
            "" if step is None else str(step.max_context),
            "" if step is None else kv_text(step.kv_bytes_beyond_windows, step.kv_bytes_per_token),
            f"no: {reason}" if reason else "yes",
        )
    return rows
