"""The state of an artifact's gates in one line, for the head of ``optc inspect``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optc.artifact.manifest import GateEntry, Manifest


def gates_line(manifest: Manifest, report: Mapping[str, Any]) -> str:
    """Counts of each engine's gates: passed, failed, or open (without a verdict of the engine).

    Args:
        manifest: It holds the verdicts of the compile.
        report: Verdicts of ``optc verify --gates`` stand there only.
    """
    if not manifest.gated:
        return "switched off"
    later = _measured_later(report)
    engines = dict.fromkeys(gate.engine for gate in manifest.gates)
    lines = [
        _line(engine, [g for g in manifest.gates if g.engine == engine], later)
        for engine in engines
    ]
    return "; ".join(filter(None, lines)) or "measured, and none was judged"


def _line(engine: str, gates: Sequence[GateEntry], later: Mapping[tuple[str, str], bool]) -> str:
    own = [gate for gate in gates if gate.bound is not None and not gate.lowered]
    verdicts = [later.get((engine, g.name)) if g.passed is None else g.passed for g in own]
    parts = [
        f"{state}: {verdicts.count(verdict)} of {len(own)} on {engine}"
        for state, verdict in (("FAILED", False), ("passed", True), ("open", None))
        if verdict in verdicts
    ]
    return ", ".join(parts) + (_lowered(gates) if None in verdicts else "")


def _lowered(gates: Sequence[GateEntry]) -> str:
    """The verdict of gates on the model that the engine was lowered to, if there were any."""
    verdicts = [g.passed for g in gates if g.lowered and g.bound is not None]
    if not verdicts:
        return ""
    return f" (lowered ONNX {'passed' if all(verdicts) else 'FAILED'})"


def _measured_later(report: Mapping[str, Any]) -> dict[tuple[str, str], bool]:
    """Verdicts of engines by engine and gate."""
    return {
        (gate.get("engine", "target"), gate["name"]): gate["passed"]
        for gate in report.get("gates", [])
        if gate["measured_on"] == "engine" and gate["passed"] is not None
    }
