"""``optc targets``: what can be compiled for, and what this machine runs."""

from __future__ import annotations

from typing import Any

import click

from optc.cli.output import json_option, print_json, show, table
from optc.target import Target, host_features, known_targets, usable_threads


@click.command("targets", short_help="List the targets and which of them run here.")
@json_option
def command(as_json: bool) -> None:
    """List the targets with the CPU features they need, and which of them run here."""
    host = host_features()
    entries = [_describe(target, host) for target in known_targets().values()]
    if as_json:
        machine = {"features": sorted(host), "threads": usable_threads()}
        print_json("targets", {"targets": entries, "host": machine})
        return
    rows = table("targets", "name", "kind", "runs here", "features")
    for entry in entries:
        missing = ", ".join(entry["missing"])
        runs = f"no, lacks {missing}" if missing else "yes"
        rows.add_row(entry["name"], entry["kind"], runs, " ".join(entry["features"]))
    show(rows)


def _describe(target: Target, host: frozenset[str]) -> dict[str, Any]:
    missing = target.missing_on(host)
    return {
        "name": target.name,
        "kind": target.kind,
        "features": list(target.features),
        "runs_here": not missing,
        "missing": list(missing),
    }
