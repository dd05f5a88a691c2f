"""Distributions of lengths."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import InputError
from optc.proof.bench.lengths import draw_lengths


def draw(text: str, size: int = 20_000) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return draw_lengths(text, size, np.random.default_rng(0), "prompt")


def test_fixed_and_uniform_lengths() -> None:
    assert set(draw(" 128 ")) == {128}
    assert set(draw("fixed(7)")) == {7}
    assert set(draw("uniform(3,5)")) == {3, 4, 5}
    assert set(draw("uniform(4,4)")) == {4}
    assert len(draw("9", 3)) == 3


def test_random_lengths_have_the_stated_parameters() -> None:
    assert draw("exponential(50)").mean() == pytest.approx(50, rel=0.03)
    found = draw("lognormal(256,0.6)")
    assert np.median(found) == pytest.approx(256, rel=0.03)
    assert np.log(found).std() == pytest.approx(0.6, rel=0.03)
    assert draw("exponential(1)").min() == 1, "no prompt is empty"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-1",
        "long",
        "normal(3)",
        "uniform(5)",
        "uniform(5,3)",
        "uniform(0,3)",
        "uniform(1,x)",
        "lognormal(9,-1)",
        "lognormal(inf,1)",
        "exponential(nan)",
        "fixed(1,2)",
        "7 8",
    ],
)
def test_what_is_no_distribution(text: str) -> None:
    with pytest.raises(InputError) as caught:
        draw(text)
    assert caught.value.where == "prompt"
    assert "uniform(low,high), exponential(mean), lognormal(median,sigma)" in caught.value.hint
