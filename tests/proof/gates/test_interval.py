"""The interval of a mean over windows."""

from __future__ import annotations

import numpy as np
import pytest

from optc.proof.gates.interval import mean_interval


def test_it_is_about_that_of_a_normal_mean() -> None:
    figures = np.random.default_rng(1).normal(3.0, 0.5, 100)
    found = mean_interval(figures)
    assert found is not None
    half = 1.96 * figures.std() / 10
    assert found[0] == pytest.approx(figures.mean() - half, abs=0.02)
    assert found[1] == pytest.approx(figures.mean() + half, abs=0.02)


def test_it_holds_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    found = [mean_interval(rng.exponential(1.0, 40)) for _ in range(200)]
    held = sum(one is not None and one[0] <= 1.0 <= one[1] for one in found)
    assert 176 <= held <= 198


@pytest.mark.parametrize("figures", [[1.0], [1.0, np.nan], [1.0, np.inf]])
def test_of_less_there_is_none(figures: list[float]) -> None:
    assert mean_interval(np.array(figures)) is None
