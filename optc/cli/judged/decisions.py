"""Decisions of conversations as tables: how many flip, and the worst ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optc.cli.output import figure, table

if TYPE_CHECKING:
    from rich.table import Table

#: How many of the worst decisions a table shows; ``report.json`` has more.
_SHOWN = 5
_NUMBERS = ("margin", "left")


def decision_tables(decisions: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    """A table for each engine: its title has the counts, its rows the worst decisions.

    Args:
        decisions: Figures by engine (`optc.proof.conditions.decisions.decisions_of`).
    """
    several = len(decisions) > 1
    return [
        _table(f"decisions of {engine}" if several else "decisions", figures)
        for engine, figures in decisions.items()
    ]


def _table(title: str, figures: Mapping[str, Any]) -> Table:
    flips = figures["flips"]
    counts = f"{figures['count']}, {figures['firm']} of them firm, {flips or 'none'} flipped"
    columns = ("where", "what", "float32", "engine", "margin", "left", "")
    rows = table(f"{title}: {counts}", *columns, numbers=_NUMBERS)
    shown: Sequence[Mapping[str, Any]] = figures["worst"][:_SHOWN]
    for entry in shown:
        rows.add_row(
            entry["where"].rpartition("/")[2],
            entry["about"] or entry["kind"],
            _option(entry["reference"]),
            _option(entry["engine"]),
            figure(entry["margin"], 3),
            figure(entry["engine_margin"], 3),
            "FLIPPED" if entry["flipped"] else "",
        )
    return rows


def _option(found: Mapping[str, Any]) -> str:
    """The choice of a model, and its probability in either model."""
    before, after = (figure(found[f"{model}_probability"], 2) for model in ("reference", "engine"))
    return f"{found['option']!r} {before} → {after}"
