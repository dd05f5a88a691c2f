"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optc.cli.output import figure, table

if TYPE_CHECKING:
    from rich.table import Table

_VERDICTS = {True: "passed", False: "FAILED", None: "-"}


def passes_table(passes: Sequence[Mapping[str, Any]]) -> Table:
    """What each pass did: places rewritten, seconds, places by kind."""
    rows = table("passes", "name", "count", "seconds", "what", numbers=("count", "seconds"))
    for entry in passes:
        details = ", ".join(f"{k} {v}" for k, v in entry.get("details", {}).items())
        rows.add_row(entry["name"], str(entry["count"]), f"{entry['seconds']:.2f}", details)
    return rows


def gates_table(gates: Sequence[Mapping[str, Any]]) -> Table:
    """Each gate's value, bound and verdict."""
    rows = table("gates", "name", "value", "bound", "verdict", "why", numbers=("value", "bound"))
    for gate in gates:
        rows.add_row(
            gate["name"],
            figure(gate["value"]),
            figure(gate["bound"]),
            _VERDICTS[gate["passed"]],
            gate.get("reason", ""),
        )
    return rows
