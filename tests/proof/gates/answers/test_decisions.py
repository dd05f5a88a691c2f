"""Figures of decisions: flips, what is left of margins, the worst."""

from __future__ import annotations

import numpy as np
import pytest

from optc.proof.conversations.decision import Decision, Option
from optc.proof.gates.answers.decisions import MOST, TAIL, Decided, decision_figures, flip_text
from optc.proof.gates.answers.margins import Margin

OPTIONS = (Option("c", (1,)), Option("f", (2,)))


def decided(margin: float, left: float, kind: str = "value", where: str = "t:1") -> Decided:
    decision = Decision(kind, 3, "unit", OPTIONS, 0)  # type: ignore[arg-type]
    engine = 0 if left >= 0 else 1
    probabilities = ((0.6, 0.5), (0.4, float("nan")))
    found = Margin(decision, where, 0, engine, margin, left, probabilities)
    return Decided(found, np.array([5, 6, 7, 1], np.int32))


def test_only_firm_decisions_count_as_flips() -> None:
    some = [decided(0.1, -1), decided(0.11, -0.01), decided(2, 1.8), decided(3, -1, kind="tool")]
    found = decision_figures(some, None)
    assert (found.count, found.firm, found.flips, found.flips_of_any_margin) == (4, 3, 2, 3)
    assert found.by_kind == {
        "value": {"count": 3, "firm": 2, "flips": 1},
        "tool": {"count": 1, "firm": 1, "flips": 1},
    }


def test_the_factor_is_what_all_but_the_worst_keep() -> None:
    kept = np.random.default_rng(0).permutation(np.linspace(0.5, 1.1, 100))
    found = decision_figures([decided(2, 2 * one) for one in kept.tolist()], None)
    assert found.margin_factor == pytest.approx(np.sort(kept)[int(TAIL * 99)])
    below = [one for one in kept if one < found.margin_factor - 1e-9]
    assert len(below) <= TAIL * 100
    open_ones = [decided(0.05, -1)] * 50
    same = decision_figures([*open_ones, *(decided(2, 2 * one) for one in kept.tolist())], None)
    assert same.margin_factor == found.margin_factor, "open decisions have none"
    one_lost = [decided(2, 2)] * 99 + [decided(2, -400)]
    assert decision_figures(one_lost, None).margin_factor == 1, "it does not follow a single one"


def test_there_may_be_no_factor() -> None:
    assert decision_figures([decided(0.05, 0.05)], None).margin_factor is None
    assert decision_figures([], None).margin_factor is None
    lost = decision_figures([decided(2, float("nan"))], None)
    assert (lost.margin_factor, lost.flips) == (None, 1)


def test_flips_of_large_margins_are_the_worst_then_what_keeps_least() -> None:
    some = [
        decided(1, 0.9, where="a"),
        decided(1, -0.1, where="b"),
        decided(4, 1, where="c"),
        decided(3, -2, where="d"),
        decided(0.1, -9, where="open"),
    ]
    worst = decision_figures(some, None).worst
    assert [(one["where"], one["flipped"]) for one in worst] == [
        *(("d", True), ("b", True)),
        *(("c", False), ("a", False)),
    ]
    assert len(decision_figures(some * 10, None).worst) == MOST
    assert flip_text(worst[0]) == "d, unit: 'f' instead of 'c'"


def test_an_entry_has_the_text_before_and_what_both_take() -> None:
    (entry,) = decision_figures([decided(2, -1)], lambda ids: str(ids)).worst
    assert entry == {
        "kind": "value",
        "about": "unit",
        "where": "t:1",
        "context": "[5, 6, 7]",
        "flipped": True,
        "margin": 2,
        "engine_margin": -1,
        "taken": "c",
        "reference": {"option": "c", "reference_probability": 0.6, "engine_probability": 0.5},
        "engine": {"option": "f", "reference_probability": 0.4, "engine_probability": None},
    }


def test_single_tokens_are_shown_as_texts_or_numbers() -> None:
    free = Margin(Decision("begin", 3, "", (), -1), "t:1", 4, 5, 2, -1, ((0, 0), (0, 0)))
    one = Decided(free, np.array([5, 6, 7, 1], np.int32))
    for decode, names in (
        (None, ("#4", "#5", "#1")),
        (lambda ids: f"<{ids[0]}>", ("<4>", "<5>", "<1>")),
    ):
        (entry,) = decision_figures([one], decode).worst
        assert (entry["reference"]["option"], entry["engine"]["option"], entry["taken"]) == names
        assert flip_text(entry).startswith("t:1, begin: ")
