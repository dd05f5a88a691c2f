"""Decisions of conversations: how many flip, how much of margins is left, and the worst ones."""

from __future__ import annotations

from optc.artifact.jsonio import Fields
from optc.report.components import Column, Section, numbers, paragraph, table
from optc.report.markup import Element, Node, element
from optc.report.numbers import count, number, percent
from optc.report.sections.subject import Subject
from optc.report.tokens import token_text

_KINDS = {
    "begin": "how an answer begins",
    "call": "call a tool, or answer",
    "tool": "which tool",
    "value": "a value of a few",
    "end": "end the turn",
}


def decisions(subject: Subject) -> Section | None:
    """Decisions that differ from the float32 model's, by engine; None if none was measured."""
    entries = [
        (name, f.child("answers").child("decisions"))
        for name, f in subject.evaluations()
        if f.values.get("answers") and f.child("answers").values.get("decisions")
    ]
    if not entries:
        return None
    body: list[Node] = [paragraph(_CAPTION)]
    for name, f in entries:
        if len(entries) > 1:
            body.append(element("h3", name))
        body += [paragraph(_summary(f)), _by_kind(f)]
        body.append(element("ol", map(_decision, f.children("worst")), class_="contexts"))
    return Section("decisions", "Decisions in conversations", tuple(body))


_CAPTION = (
    "Where the model acts: the first token of an answer, whether it calls a tool and which one, a "
    "value of a few, the end of a turn. The margin is the difference of the log-probabilities of "
    "the float32 model's best and second best option; what is left of it is the engine's. A "
    "decision is firm if the margin is above 0.1 nats, and flipped if nothing of it is left."
)


def _summary(f: Fields) -> str:
    most, half = (number(f.number(key)) for key in ("margin_factor", "margin_factor_p50"))
    return (
        f"{count(f.count('count'))} decisions, {count(f.count('firm'))} of them firm. Of these, "
        f"{count(f.count('flips'))} flipped. All but the worst twentieth keep {most} times their "
        f"margin, and half of them {half} times."
    )


def _by_kind(f: Fields) -> Element:
    found = f.child("by_kind")
    rows: list[list[Node | None]] = []
    for kind in found.values:
        own = found.child(kind)
        figures = (count(own.count(key)) for key in ("count", "firm", "flips"))
        rows.append([_KINDS.get(kind, kind), *figures])
    return table([Column("decision"), *numbers("all", "firm", "flipped")], rows)


def _decision(f: Fields) -> Element:
    what = f.optional("about", str) or _KINDS.get(f.optional("kind", str) or "", "")
    flipped = element("mark", "flipped") if f.values.get("flipped") else ""
    left = f"margin {number(f.number('margin'))} nats, left {number(f.number('engine_margin'))}"
    head = [element("span", part) for part in (what, left, f.optional("where", str) or "")]
    return element(
        "li",
        element("p", *head, flipped, class_="where"),
        element("pre", f.optional("context", str) or ""),
        _option("float32 model", f.child("reference")),
        _option("engine", f.child("engine")),
    )


def _option(model: str, f: Fields) -> Element:
    by_reference = percent(f.number("reference_probability"), 2)
    by_engine = percent(f.number("engine_probability"), 2)
    return element(
        "p",
        f"{model}: ",
        element("code", token_text(f.optional("option", str) or "")),
        f", float32 {by_reference}, engine {by_engine}",
    )
