"""The learning rate rises, then falls to zero."""

from __future__ import annotations

import itertools

import pytest

from optc.compiling.training.schedule import rate_share


def test_it_rises_in_a_twentieth_and_falls_like_a_cosine() -> None:
    shares = [rate_share(step, 200) for step in range(200)]
    assert shares[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert shares[10] == 1.0
    assert all(a > b for a, b in itertools.pairwise(shares[10:]))
    assert shares[105] == pytest.approx(0.5)
    assert shares[-1] < 1e-3


def test_one_step_has_the_whole_rate() -> None:
    assert rate_share(0, 1) == 1.0
