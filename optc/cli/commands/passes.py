"""``optc passes``: every pass, with its options."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

import click

from optc.cli.output import json_option, print_json, show, table

if TYPE_CHECKING:
    from optc.pipeline.base import Pass


@click.command("passes", short_help="List the passes and their options.")
@json_option
def command(as_json: bool) -> None:
    """List the passes by group, with their options and defaults."""
    from optc.system.needs import compile_packages

    with compile_packages():
        from optc.pipeline import registry as pass_registry
        from optc.pipeline.option_values import value_text

        groups = pass_registry.pass_groups()
    entries = [_describe(group, p) for group, members in groups.items() for p in members]
    if as_json:
        print_json("passes", {"passes": entries})
        return
    rows = table("passes", "group", "name", "what", "options", prose=["what"])
    for entry in entries:
        options = "\n".join(f"{k}={value_text(v)}" for k, v in entry["options"].items())
        rows.add_row(entry["group"], entry["name"], entry["description"], options)
    show(rows)


def _describe(group: str, pass_class: type[Pass]) -> dict[str, Any]:
    text = inspect.getdoc(pass_class) or ""
    return {
        "name": pass_class.name,
        "group": group,
        "description": text.split("\n\n")[0].replace("\n", " "),
        "options": {f.name: f.default for f in dataclasses.fields(pass_class)},
        "required": pass_class.required,
        "expected": pass_class.expected,
        "after": list(pass_class.after),
        "before": list(pass_class.before),
    }
