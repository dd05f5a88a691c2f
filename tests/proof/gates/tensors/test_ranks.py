"""Pairs of texts in the reference's order."""

from __future__ import annotations

import numpy as np
import pytest

from optc.proof.gates.tensors.ranks import Ranks


def test_pairs_are_counted_within_a_sample() -> None:
    ranks = Ranks()
    wanted = {"logits": np.array([[3.0], [1.0], [2.0]], np.float32)}
    ranks.add(wanted, wanted)
    assert ranks.value() == 1
    ranks.add({"logits": np.array([[3.0], [2.5], [2.0]], np.float32)}, wanted)
    assert ranks.value() == pytest.approx(5 / 6)


def test_equal_scores_have_no_order() -> None:
    ranks = Ranks()
    even = {"logits": np.ones((4, 1), np.float32)}
    ranks.add({"logits": np.arange(4.0)[:, None]}, even)
    assert ranks.value() is None


def test_texts_that_an_engine_cannot_tell_apart_are_not_in_order() -> None:
    ranks = Ranks()
    ranks.add({"y": np.ones((2, 1))}, {"y": np.array([[1.0], [2.0]])})
    assert ranks.value() == 0
