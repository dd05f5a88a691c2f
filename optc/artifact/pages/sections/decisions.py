"""Decisions of conversations: how many flip, how much of margins is left, and the worst ones."""

from __future__ import annotations

from optc.artifact.pages.components import Column, Section, numbers, paragraph, table
from optc.artifact.pages.markup import Element, Node, element
from optc.artifact.pages.numbers import count, number, percent
from optc.artifact.pages.sections.subject import Subject
from optc.artifact.pages.tokens import token_text
from optc.artifact.report_data import (
    AnswersOf,
    DecisionCounts,
    DecisionData,
    DecisionsData,
    OptionData,
)

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
        (name, f.answers.decisions)
        for name, f in subject.evaluations(AnswersOf)
        if f.answers is not None and f.answers.decisions is not None
    ]
    if not entries:
        return None
    body: list[Node] = [paragraph(_CAPTION)]
    for name, f in entries:
        if len(entries) > 1:
            body.append(element("h3", name))
        body += [paragraph(_summary(f)), _by_kind(f)]
        body.append(element("ol", map(_decision, f.worst), class_="contexts"))
    return Section("decisions", "Decisions in conversations", tuple(body))


_CAPTION = (
    "Where the model acts: the first token of an answer, whether it calls a tool and which one, a "
    "value of a few, the end of a turn. The margin is the difference of the log-probabilities of "
    "the float32 model's best and second best option; what is left of it is the engine's. A "
    "decision is firm if the margin is above 0.1 nats, and flipped if nothing of it is left."
)


def _summary(f: DecisionsData) -> str:
    return (
        f"{count(f.count)} decisions, {count(f.firm)} of them firm. Of these, {count(f.flips)} "
        f"flipped. All but the worst twentieth keep {number(f.margin_factor)} times their margin, "
        f"and half of them {number(f.margin_factor_p50)} times."
    )


def _by_kind(f: DecisionsData) -> Element:
    rows = [[_KINDS.get(kind, kind), *_counts(own)] for kind, own in f.by_kind.items()]
    return table([Column("decision"), *numbers("all", "firm", "flipped")], rows)


def _counts(f: DecisionCounts) -> list[Node | None]:
    return [count(f.count), count(f.firm), count(f.flips)]


def _decision(f: DecisionData) -> Element:
    what = f.about or _KINDS.get(f.kind or "", "")
    flipped = element("mark", "flipped") if f.flipped else ""
    left = f"margin {number(f.margin)} nats, left {number(f.engine_margin)}"
    head = [element("span", part) for part in (what, left, f.where or "")]
    return element(
        "li",
        element("p", *head, flipped, class_="where"),
        element("pre", f.context or ""),
        _option("float32 model", f.reference),
        _option("engine", f.engine),
    )


def _option(model: str, f: OptionData) -> Element:
    by_reference = percent(f.reference_probability, 2)
    by_engine = percent(f.engine_probability, 2)
    return element(
        "p",
        f"{model}: ",
        element("code", token_text(f.option or "")),
        f", float32 {by_reference}, engine {by_engine}",
    )
