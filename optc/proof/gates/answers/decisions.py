"""Figures of decisions: how many flip, how much of margins is left, and which are the worst."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optc.proof.gates.answers.margins import Margin
from optc.proof.gates.worst_contexts import Decode
from optc.runtime.executable.executable import Int32

#: Decisions of a smaller margin, in nats, are open: a flip among them is no loss that a user sees.
LEAST_MARGIN = 0.1
#: Share of decisions that keep less of their margin than ``margin_factor`` says.
TAIL = 0.05
#: How many of the worst a report lists, and how much of the text before each.
MOST = 12
CONTEXT_TOKENS = 48
CONTEXT_CHARACTERS = 160


@dataclass(frozen=True)
class Decided:
    """A margin, and the token ids before the decision."""

    margin: Margin
    before: Int32


@dataclass(frozen=True)
class DecisionFigures:
    """Figures over all decisions.

    Attributes:
        count: Decisions.
        firm: Those of a margin above `LEAST_MARGIN`.
        flips: Firm ones that the engine decides otherwise.
        flips_of_any_margin: All that it decides otherwise.
        margin_factor: What the engine leaves of the margin of firm decisions: the share that all
            but the worst twentieth of them keep; 1 where nothing is lost, negative where more than
            that flip. None without firm decisions, or where it is not finite.
        margin_factor_p50: The same of half of them.
        by_kind: ``count``, ``firm`` and ``flips`` of each kind.
        worst: JSON of the worst ones (`worst_decisions`).
    """

    count: int
    firm: int
    flips: int
    flips_of_any_margin: int
    margin_factor: float | None
    margin_factor_p50: float | None
    by_kind: dict[str, dict[str, int]]
    worst: list[dict[str, Any]]


def decision_figures(decided: Sequence[Decided], decode: Decode | None) -> DecisionFigures:
    """Figures of decisions; ``decode`` gives texts of tokens."""
    margins = [one.margin for one in decided]
    firm = [one for one in margins if one.margin > LEAST_MARGIN]
    return DecisionFigures(
        count=len(margins),
        firm=len(firm),
        flips=_flips(firm),
        flips_of_any_margin=_flips(margins),
        margin_factor=_kept(firm, TAIL),
        margin_factor_p50=_kept(firm, 0.5),
        by_kind=_by_kind(margins, firm),
        worst=worst_decisions(decided, decode),
    )


def worst_decisions(decided: Sequence[Decided], decode: Decode | None) -> list[dict[str, Any]]:
    """The worst `MOST` of the firm decisions: those that flip, of the largest margin first, then
    those that keep the least of theirs.

    Returns:
        JSON values ``{kind, about, where, context, flipped, margin, engine_margin, taken,
        reference, engine}``. ``taken`` is the option of the conversation; ``reference`` and
        ``engine`` are the options that each takes: ``{option, reference_probability,
        engine_probability}``.
    """
    firm = [one for one in decided if one.margin.margin > LEAST_MARGIN]
    firm.sort(key=lambda one: _rank(one.margin))
    return [_entry(one, decode) for one in firm[:MOST]]


def flip_text(entry: dict[str, Any]) -> str:
    """A flipped decision in words."""
    what = entry["about"] or entry["kind"]
    engine, reference = (entry[key]["option"] for key in ("engine", "reference"))
    return f"{entry['where']}, {what}: {engine!r} instead of {reference!r}"


def _rank(margin: Margin) -> tuple[bool, float]:
    return (not margin.flipped, -margin.margin if margin.flipped else margin.kept)


def _kept(firm: Sequence[Margin], share: float) -> float | None:
    """The factor of their margins that all but a share of the decisions keep."""
    if not firm:
        return None
    return _finite(float(np.quantile([one.kept for one in firm], share, method="lower")))


def _flips(margins: Sequence[Margin]) -> int:
    return sum(one.flipped for one in margins)


def _by_kind(margins: Sequence[Margin], firm: Sequence[Margin]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for kind in dict.fromkeys(one.decision.kind for one in margins):
        every, sure = ([m for m in some if m.decision.kind == kind] for some in (margins, firm))
        found[kind] = {"count": len(every), "firm": len(sure), "flips": _flips(sure)}
    return found


def _entry(decided: Decided, decode: Decode | None) -> dict[str, Any]:
    margin, decision = decided.margin, decided.margin.decision
    taken = int(decided.before[-1]) if decision.taken < 0 else decision.taken
    before = decided.before[:-1][-CONTEXT_TOKENS:].tolist()
    context = None if decode is None else decode(before)[-CONTEXT_CHARACTERS:]
    options = (margin.reference, margin.engine)
    reference, engine = (
        {
            "option": _name(margin, option, decode),
            "reference_probability": _finite(by_both[0]),
            "engine_probability": _finite(by_both[1]),
        }
        for option, by_both in zip(options, margin.probabilities, strict=True)
    )
    return {
        "kind": decision.kind,
        "about": decision.about,
        "where": margin.where,
        "context": context,
        "flipped": margin.flipped,
        "margin": _finite(margin.margin),
        "engine_margin": _finite(margin.engine_margin),
        "taken": _name(margin, taken, decode),
        "reference": reference,
        "engine": engine,
    }


def _name(margin: Margin, option: int, decode: Decode | None) -> str:
    options = margin.decision.options
    if options:
        return options[option].name
    return f"#{option}" if decode is None else decode([option])


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
