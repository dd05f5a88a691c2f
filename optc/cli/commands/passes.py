"""``optc passes``: every pass, with its options, or all of one."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

import click

from optc.cli.output import json_option, print_json, show, table

if TYPE_CHECKING:
    from optc.ir.pipeline.base import Pass
    from optc.ir.pipeline.page import PassPage


@click.command("passes", short_help="List the passes, or show all of one.")
@click.argument("name", required=False)
@click.option("--markdown", is_flag=True, help="Print pages of all passes as Markdown.")
@json_option
def command(name: str | None, markdown: bool, as_json: bool) -> None:
    """List the passes by group, with their options and defaults.

    With NAME, show one pass: what it does, when it pays, what it costs, and its options.
    """
    from optc.system.needs import compile_packages

    with compile_packages():
        from optc.ir.pipeline import registry as pass_registry
        from optc.ir.pipeline.page import describe, markdown_pages

        groups = pass_registry.pass_groups()
    if name is not None:
        page = describe(pass_registry.named(name))
        return print_json("passes", dataclasses.asdict(page)) if as_json else _show(page)
    if markdown:
        click.echo(markdown_pages(groups), nl=False)
        return None
    return _list(groups, as_json)


def _list(groups: dict[str, tuple[type[Pass], ...]], as_json: bool) -> None:
    from optc.ir.pipeline.option_values import value_text

    entries = [_describe(group, p) for group, members in groups.items() for p in members]
    if as_json:
        print_json("passes", {"passes": entries})
        return
    rows = table("passes", "group", "name", "what", "options", prose=["what"])
    for entry in entries:
        options = "\n".join(f"{k}={value_text(v)}" for k, v in entry["options"].items())
        rows.add_row(entry["group"], entry["name"], entry["description"], options)
    show(rows)


def _show(page: PassPage) -> None:
    texts = [page.name, *map(_plain, page.does)]
    texts += [f"When it pays: {_plain(page.pays)}"] if page.pays else []
    texts.append(f"What it costs: {_plain(page.costs)}")
    texts += [f"Where it stands: {_plain('; '.join(page.order))}."] if page.order else []
    texts.append(f"If it finds nothing: {page.idle}.")
    show("\n\n".join(texts))
    if page.options:
        rows = table("", "option", "default", "is", prose=["is"])
        for one in page.options:
            rows.add_row(one.name, one.default, _plain(one.text))
        show(rows)


def _plain(text: str) -> str:
    """Text for a terminal: no marks around names."""
    return text.replace("`", "")


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
