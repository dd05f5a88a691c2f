"""Margins of decisions, by logits that are written down."""

from __future__ import annotations

import numpy as np
import pytest

from optc.proof.conversations.decision import Decision, Option
from optc.proof.gates.answers.margins import Margin, margin_of

UNIT = Decision("value", 3, "unit", (Option("c", (1, 2)), Option("f", (4,))), 0)
CALL = Decision("call", 3, "", (Option("call", (0,)), Option("answer", ())), 0)
FREE = Decision("begin", 3, "", (), -1)


def margin(decision: Decision, reference: list[float], engine: list[float]) -> Margin:
    both = (np.array(z, np.float32) for z in (reference, engine))
    return margin_of(decision, "t:1", *both)


def test_an_option_counts_as_much_as_its_likeliest_token() -> None:
    found = margin(UNIT, [9, 1, 3, 9, 2], [0, 2, 1, 8, 1.5])
    assert (found.reference, found.engine, found.flipped) == (0, 0, False)
    assert found.margin == pytest.approx(3 - 2), "tokens of no option do not count"
    assert found.engine_margin == pytest.approx(2 - 1.5)
    assert found.kept == pytest.approx(0.5)


def test_a_flip_has_a_negative_margin_and_both_probabilities() -> None:
    reference, engine = [0.0, 0, 2, 0, 1], [0.0, 0, 1, 0, 3]
    found = margin(UNIT, reference, engine)
    assert (found.reference, found.engine, found.flipped) == (0, 1, True)
    assert found.engine_margin == pytest.approx(-2)
    assert found.kept == pytest.approx(-2)
    p, q = (np.exp(z) / np.exp(z).sum() for z in (np.array(reference), np.array(engine)))
    np.testing.assert_allclose(found.probabilities, [(p[2], q[2]), (p[4], q[4])], rtol=1e-6)


def test_all_other_tokens_may_be_one_option() -> None:
    assert margin(CALL, [2, 1, 1.5], [2, 1, 1]).margin == pytest.approx(0.5)
    found = margin(CALL, [1, 2, 3], [4, 2, 3])
    assert (found.reference, found.engine, found.margin) == (1, 0, pytest.approx(2))
    assert found.engine_margin == pytest.approx(-1)


def test_each_token_may_be_an_option() -> None:
    found = margin(FREE, [1, 5, 3], [4, 5, 6])
    assert (found.reference, found.engine, found.flipped) == (1, 2, True)
    assert found.margin == pytest.approx(2)
    assert found.engine_margin == pytest.approx(5 - 6)


def test_equal_logits_are_no_flip_and_no_numbers_are_one() -> None:
    assert not margin(FREE, [1, 1, 0], [2, 2, 0]).flipped
    assert margin(FREE, [1, 1, 0], [2, 2, 0]).kept == 0, "there was no margin"
    assert not margin(UNIT, [0, 1, 0, 0, 0], [0, 1, 0, 0, 1]).flipped
    lost = margin(UNIT, [0, 1, 0, 0, 0], [0, np.nan, 0, 0, 0])
    assert lost.flipped
    assert lost.kept == -np.inf
