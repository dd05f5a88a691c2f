"""Gates: what was measured, what is allowed, and how much of that was used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optc.artifact.pages.components import Column, Section, numbers, paragraph, table
from optc.artifact.pages.markup import Element, Node, element
from optc.artifact.pages.numbers import number, percent
from optc.artifact.pages.sections.subject import Subject
from optc.artifact.tasks.task import Measure

_VERDICTS = {True: "passed", False: "failed", None: "open"}


def gates(subject: Subject) -> Section:
    """Every gate of every engine."""
    found: Sequence[Mapping[str, Any]] = subject.report.get("gates", [])
    body: list[Node] = [paragraph(_summary(subject, found))]
    engines = dict.fromkeys(gate.get("engine") or "target" for gate in found)
    for engine in engines:
        own = [gate for gate in found if (gate.get("engine") or "target") == engine]
        caption = f"Engine {engine}" if len(engines) > 1 else ""
        body.append(_table(own, subject.manifest.task.by_name, caption))
    return Section("gates", "Gates", tuple(body))


def _summary(subject: Subject, found: Sequence[Mapping[str, Any]]) -> str:
    if not subject.manifest.gated:
        return "The gates were switched off: nothing proves this artifact against its source."
    judged = [gate["passed"] for gate in found if gate["bound"] is not None]
    if not judged:
        return "No gate has a bound: what was measured is reported, and nothing is judged."
    parts = [
        f"{judged.count(verdict)} {_VERDICTS[verdict]}"
        for verdict in (True, False, None)
        if verdict in judged
    ]
    return (
        f"Of {len(judged)} gates with a bound: {', '.join(parts)}. A bar shows how much of "
        "what its bound allows was used; a gate without one is only reported."
    )


def _table(
    found: Sequence[Mapping[str, Any]], measures: Mapping[str, Measure], caption: str
) -> Element:
    columns = [Column("gate"), *numbers("value", "bound"), Column("used"), Column("verdict")]
    rows = [_row(gate, measures.get(gate["name"])) for gate in found]
    return table([*columns, Column("remark")], rows, caption)


def _row(gate: Mapping[str, Any], measure: Measure | None) -> list[Node | None]:
    """A gate, by its name alone where the task has no such measure."""
    name, value, bound, passed = (gate[key] for key in ("name", "value", "bound", "passed"))
    meaning, ideal = (None, None) if measure is None else (measure.meaning, measure.ideal)
    digits = 5 if ideal == 1 else 3
    shown = [
        element("code", name),
        *([element("br"), element("small", meaning)] if meaning else []),
    ]
    used = used_share(value, bound, passed, ideal)
    lowered = "on the lowered ONNX" if gate["measured_on"] == "lowered-onnx" else ""
    remark = ": ".join(filter(None, (lowered, gate.get("reason") or "")))
    return [
        element("span", shown),
        number(value, digits),
        None if bound is None else number(bound, digits),
        None if used is None else _meter(used),
        _verdict(passed, bound),
        remark,
    ]


def used_share(
    value: float | None, bound: float | None, passed: bool | None, ideal: int | None
) -> float | None:
    """The used share of what a bound allows: 1 at the bound, 0 where nothing was lost.

    Of gates whose ``ideal`` value is one it is the distance from one over the bound's; of other
    upper bounds the value over the bound, of lower ones the other way round. Which a bound is
    follows from the verdict.
    """
    if value is None or bound is None or passed is None or value <= 0 or bound <= 0:
        return None
    if ideal == 1 and bound != 1:
        return max((value - 1) / (bound - 1), 0.0)
    upper = (value <= bound) == passed
    return value / bound if upper else bound / value


def _meter(share: float) -> Element:
    bar = element("rect", width=100, height=8, class_="soft")
    used = element("rect", width=f"{100 * min(share, 1):.1f}", height=8, class_="fill")
    return element(
        "svg",
        element("title", f"{percent(share)} of the bound"),
        bar,
        used,
        viewBox="0 0 100 8",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{percent(share)} of the bound",
        class_="meter",
    )


def _verdict(passed: bool | None, bound: float | None) -> Element | None:
    if bound is None:
        return None
    sign = {True: "✓ ", False: "✗ ", None: ""}[passed]
    name = _VERDICTS[passed]
    return element("span", sign + name, class_=f"verdict {name}")
