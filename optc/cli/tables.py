"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optc.cli.output import byte_text, figure, table

if TYPE_CHECKING:
    from rich.table import Table

_MEASURED_ON = {"lowered-onnx": "on the lowered ONNX"}
_VERDICTS = {True: "passed", False: "FAILED", None: "-"}


def passes_table(passes: Sequence[Mapping[str, Any]]) -> Table:
    """What each pass did: places rewritten, seconds, places by kind, or why there are none."""
    rows = table("passes", "name", "count", "seconds", "what", numbers=("count", "seconds"))
    for entry in passes:
        details = ", ".join(f"{k} {v}" for k, v in entry.get("details", {}).items())
        what = details or entry.get("warning", "")
        rows.add_row(entry["name"], str(entry["count"]), f"{entry['seconds']:.2f}", what)
    return rows


def engines_table(engines: Sequence[Mapping[str, Any]]) -> Table:
    """Each engine of a compile: bytes of its own, and whose weights it reads."""
    rows = table("engines", "name", "bytes", "weights", "seconds", numbers=("bytes", "seconds"))
    for entry in engines:
        name, owner = entry["name"], entry["weights_of"]
        weights = byte_text(entry["weight_bytes"]) if owner == name else f"of {owner}"
        rows.add_row(name, byte_text(entry["bytes"]), weights, f"{entry['seconds']:.1f}")
    return rows


def gates_tables(gates: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Each gate's value, bound and verdict, a table for each engine."""
    engines = dict.fromkeys(gate.get("engine") for gate in gates)
    several = len(engines) > 1
    return [
        _gates_table(
            f"gates of {engine}" if several else "gates",
            [gate for gate in gates if gate.get("engine") == engine],
        )
        for engine in engines
    ]


def _gates_table(title: str, gates: Sequence[Mapping[str, Any]]) -> Table:
    rows = table(title, "name", "value", "bound", "verdict", "why", numbers=("value", "bound"))
    reasons: set[str] = set()
    for gate in gates:
        reason = gate.get("reason", "")
        why = (_MEASURED_ON.get(gate["measured_on"], ""), '"' if reason in reasons else reason)
        reasons.update([reason] if reason else [])
        rows.add_row(
            gate["name"],
            figure(gate["value"]),
            figure(gate["bound"]),
            _VERDICTS[gate["passed"]],
            ": ".join(filter(None, why)),
        )
    return rows
