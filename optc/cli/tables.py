"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optc.cli.output import byte_text, figure, table

if TYPE_CHECKING:
    from rich.table import Table

_MEASURED_ON = {"lowered-onnx": " (lowered ONNX)"}
_VERDICTS = {True: "passed", False: "FAILED", None: "-"}


def passes_table(passes: Sequence[Mapping[str, Any]]) -> Table:
    """What each pass did: places rewritten, seconds, places by kind."""
    rows = table("passes", "name", "count", "seconds", "what", numbers=("count", "seconds"))
    for entry in passes:
        details = ", ".join(f"{k} {v}" for k, v in entry.get("details", {}).items())
        rows.add_row(entry["name"], str(entry["count"]), f"{entry['seconds']:.2f}", details)
    return rows


def engines_table(engines: Sequence[Mapping[str, Any]]) -> Table:
    """Each engine of a compile: bytes of its own, and whose weights it reads."""
    rows = table("engines", "name", "bytes", "weights", "seconds", numbers=("bytes", "seconds"))
    for entry in engines:
        name, owner = entry["name"], entry["weights_of"]
        weights = byte_text(entry["weight_bytes"]) if owner == name else f"of {owner}"
        rows.add_row(name, byte_text(entry["bytes"]), weights, f"{entry['seconds']:.1f}")
    return rows


def gates_table(gates: Sequence[Mapping[str, Any]]) -> Table:
    """Each gate's value, bound and verdict; with its engine where there are several."""
    several = len({gate.get("engine") for gate in gates}) > 1
    lead = ("engine",) if several else ()
    rows = table(
        "gates", *lead, "name", "value", "bound", "verdict", "why", numbers=("value", "bound")
    )
    for gate in gates:
        rows.add_row(
            *((gate["engine"],) if several else ()),
            gate["name"] + _MEASURED_ON.get(gate["measured_on"], ""),
            figure(gate["value"]),
            figure(gate["bound"]),
            _VERDICTS[gate["passed"]],
            gate.get("reason", ""),
        )
    return rows
