"""Speeds of an artifact's engines, as the gates measured them: a hint for choosing among them.

The figures are in the report, which no digest covers and which may be gone or of another release:
what cannot be read is left out, and nothing here fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from optc.artifact.manifest import EngineEntry
from optc.system.hardware.machine import Machine


def measured_speeds(
    report: Mapping[str, Any],
    engines: Iterable[EngineEntry],
    machine: Machine,
    gates: Sequence[str],
) -> dict[str, float]:
    """Speed by engine name, of those that were measured on a machine such as this one.

    Args:
        report: ``report.json``, or whatever is in its place.
        engines: Of the artifact.
        machine: Only what was measured on its CPU features counts, and for engines on CUDA devices
            on its devices' compute capabilities.
        gates: The task's gates of speed, all of which an engine must have.

    Returns:
        Times the speed of the reference: the geometric mean of these gates, for text generation of
        prefill and decode. The reference was timed in turns with each engine, so that the ratios
        can be compared although the machine was not equally busy.
    """
    if not gates:
        return {}
    known = _speed_gates(report)
    found = {}
    for engine in engines:
        values = [known.get((engine.name, name)) for name in gates]
        if _alike(_measured_on(report, engine.name), engine, machine) and None not in values:
            product = math.prod(v for v in values if v is not None)
            found[engine.name] = product ** (1 / len(values))
    return found


def _speed_gates(report: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Values by engine and gate, of the engines themselves."""
    found = {}
    for gate in _objects(report.get("gates")):
        engine, name, value = (gate.get(key) for key in ("engine", "name", "value"))
        if gate.get("measured_on") == "engine" and _is_speed(value):
            found[str(engine), str(name)] = value
    return found


def _is_speed(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _measured_on(report: Mapping[str, Any], engine: str) -> Mapping[str, Any]:
    """Facts of the machine that the engine's gates were measured on last."""
    facts = report.get("machine")
    for verified in _objects(report.get("verified")):  # in order of time
        names = verified.get("engines")
        if isinstance(names, list) and engine in names:
            facts = verified.get("machine")
    return facts if isinstance(facts, dict) else {}


def _alike(facts: Mapping[str, Any], engine: EngineEntry, machine: Machine) -> bool:
    if facts.get("features") != sorted(machine.features):
        return False
    return engine.target.kind != "cuda" or facts.get("sm") == list(machine.sm)


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
