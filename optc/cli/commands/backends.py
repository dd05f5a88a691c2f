"""``optc backends``: every backend, and whether it can build here."""

from __future__ import annotations

import click

from optc import registry
from optc.cli.output import json_option, print_json, show, table


@click.command("backends", short_help="List the backends and whether they can build here.")
@json_option
def command(as_json: bool) -> None:
    """List the backends; one that cannot build here says why and how to mend it."""
    found = [(name, registry.backend(name).available()) for name in registry.backend_names()]
    if as_json:
        entries = [{"name": n, "available": not why, "reason": why} for n, why in found]
        print_json("backends", {"backends": entries})
        return
    rows = table("backends", "name", "builds here")
    for name, why in found:
        rows.add_row(name, why or "yes")
    show(rows)
