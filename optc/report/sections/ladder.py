"""The ladder: which recipes were tried for the gates, and what became of each."""

from __future__ import annotations

from collections.abc import Sequence

from optc.artifact.jsonio import Fields
from optc.foreign.typed_json import MAX_INT
from optc.report.components import Column, Section, numbers, paragraph, table
from optc.report.markup import Node, element
from optc.report.numbers import NOTHING, number, seconds
from optc.report.sections.subject import Subject
from optc.units import byte_text

#: What the objectives ask for.
_WANTED = {
    "decode": "the fastest decode of one sequence",
    "prefill": "the fastest prefill",
    "size": "the smallest artifact",
    "memory": "the least memory at run time",
}


def ladder(subject: Subject) -> Section | None:
    """Every rung, the one that serves the objective best first; None where a recipe was named."""
    if "ladder" not in subject.report:
        return None
    fields = subject.fields.child("ladder")
    gates = list(fields.child("gates").values)
    columns = [
        Column("recipe"),
        *numbers("decode/s at most", "prefill/s at most", "artifact", *gates, "windows", "time"),
        Column("outcome"),
        Column("why"),
    ]
    rows = [_row(rung, gates) for rung in fields.children("rungs")]
    return Section(
        "ladder", "Recipes that were tried", (paragraph(_summary(fields)), table(columns, rows))
    )


def _summary(fields: Fields) -> str:
    objective, gates = fields.get("objective", str), fields.child("gates")
    bounds = ", ".join(f"{name} {number(gates.number(name))}" for name in gates.values)
    tried = sum(bool(rung.values.get("seconds")) for rung in fields.children("rungs"))
    return (
        f"Recipes are in the order that is predicted for {_WANTED.get(objective, objective)}. "
        f"{tried} of them were tried, to hold {bounds}. Most rungs that fell did so on few windows "
        "of the text; figures of all windows decide that one holds."
    )


def _row(rung: Fields, gates: Sequence[str]) -> list[Node | None]:
    name = element("code", rung.get("recipe", str))
    outcome, why = rung.get("outcome", str), rung.get("why", str)
    if "predicted" not in rung.values:  # it was never a rung
        return [name, *[None] * (5 + len(gates)), outcome, why]
    predicted, values = rung.child("predicted"), rung.child("values")
    size = predicted.number("artifact_bytes")
    windows = rung.count("windows", 0, MAX_INT)
    return [
        name,
        number(predicted.number("decode_tokens_per_s")),
        number(predicted.number("prefill_tokens_per_s")),
        NOTHING if size is None else byte_text(int(size)),
        *(number(values.number(gate)) if gate in values.values else None for gate in gates),
        str(windows) if windows else None,
        seconds(rung.number("seconds")) if rung.values.get("seconds") else None,
        outcome,
        why,
    ]
