"""The ladder: which recipes were tried for the gates, and what became of each."""

from __future__ import annotations

from collections.abc import Sequence

from optc.artifact.pages.components import Column, Section, numbers, paragraph, table
from optc.artifact.pages.markup import Node, element
from optc.artifact.pages.numbers import NOTHING, number, seconds
from optc.artifact.pages.sections.subject import Subject
from optc.artifact.report_data import LadderData, RungData
from optc.system.foreign.typed_json import typed
from optc.system.units import byte_text

#: What the objectives ask for.
_WANTED = {
    "decode": "the fastest decode of one sequence",
    "prefill": "the fastest prefill",
    "size": "the smallest artifact",
    "memory": "the least memory at run time",
    "speed": "the fastest engine here",
}


def ladder(subject: Subject) -> Section | None:
    """Every rung, the one that serves the objective best first; None where a recipe was named."""
    if "ladder" not in subject.report:
        return None
    found = typed(subject.report["ladder"], LadderData, "report.json: ladder")
    gates = list(found.gates)
    measured = any(rung.measured is not None for rung in found.rungs)
    first = ("times float32",) if measured else ("decode/s at most", "prefill/s at most")
    last = ("time",) if measured else ("windows", "time")
    columns = [
        Column("recipe"),
        *numbers(*first, "artifact", *gates, *last),
        Column("outcome"),
        Column("why"),
    ]
    row = _measured_row if measured else _row
    summary = _measured_summary(found) if measured else _summary(found)
    rows = [row(rung, gates) for rung in found.rungs]
    return Section("ladder", "Recipes that were tried", (paragraph(summary), table(columns, rows)))


def _measured_summary(found: LadderData) -> str:
    bounds = ", ".join(f"{name} {number(bound)}" for name, bound in found.gates.items())
    tried = sum(rung.measured is not None for rung in found.rungs)
    wanted = _WANTED.get(found.objective, found.objective)
    return (
        f"{tried} recipes were built and measured, to hold {bounds}; of those that do, "
        f"{wanted} was chosen. Speeds are times that of float32 in ONNX Runtime."
    )


def _measured_row(rung: RungData, gates: Sequence[str]) -> list[Node | None]:
    name, measured = element("code", rung.recipe), rung.measured
    if measured is None:  # it does not take the model
        return [name, *[None] * (3 + len(gates)), rung.outcome, rung.why]
    size = measured.get("artifact_bytes")
    return [
        name,
        number(measured.get("speed")),
        NOTHING if size is None else byte_text(int(size)),
        *(number(rung.values[gate]) if gate in rung.values else None for gate in gates),
        seconds(rung.seconds) if rung.seconds else None,
        rung.outcome,
        rung.why,
    ]


def _summary(found: LadderData) -> str:
    bounds = ", ".join(f"{name} {number(bound)}" for name, bound in found.gates.items())
    tried = sum(bool(rung.seconds) for rung in found.rungs)
    wanted = _WANTED.get(found.objective, found.objective)
    return (
        f"Recipes are in the order that is predicted for {wanted}. "
        f"{tried} of them were tried, to hold {bounds}. Most rungs that fell did so on few windows "
        "of the text; figures of all windows decide that one holds."
    )


def _row(rung: RungData, gates: Sequence[str]) -> list[Node | None]:
    name, predicted = element("code", rung.recipe), rung.predicted
    if predicted is None:  # it was never a rung
        return [name, *[None] * (5 + len(gates)), rung.outcome, rung.why]
    size = predicted.get("artifact_bytes")
    return [
        name,
        number(predicted.get("decode_tokens_per_s")),
        number(predicted.get("prefill_tokens_per_s")),
        NOTHING if size is None else byte_text(int(size)),
        *(number(rung.values[gate]) if gate in rung.values else None for gate in gates),
        str(rung.windows) if rung.windows else None,
        seconds(rung.seconds) if rung.seconds else None,
        rung.outcome,
        rung.why,
    ]
