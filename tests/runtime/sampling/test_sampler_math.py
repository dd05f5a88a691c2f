"""The shared arithmetic against the standard library's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from optc.runtime.sampling.sampler_math import FARTHEST, HELD, WHOLE_MASS, distances, log, masses


def test_masses_are_probabilities_to_half_a_unit() -> None:
    distance = np.concatenate(
        [[0.0, FARTHEST, np.inf], np.random.default_rng(0).uniform(0, 40, 9999)]
    )
    exact = np.exp(-distance) * WHOLE_MASS
    assert np.abs(masses(distance) - exact).max() < 0.6
    assert masses(distance)[:3].tolist() == [WHOLE_MASS, 0, 0]


def test_the_masses_of_the_largest_vocabulary_can_be_summed() -> None:
    assert (1 << 19) * WHOLE_MASS == 2**63
    assert int(np.full((1 << 19) - 1, WHOLE_MASS).sum()) == 2**63 - WHOLE_MASS


def test_the_logarithm_is_that_of_the_library() -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate(
        [rng.uniform(0, 2, 20_000), 1 - 2.0 ** -np.arange(1, 54), np.exp(rng.uniform(-40, 40, 999))]
    )
    expected = np.array([math.log(value) for value in x])
    assert np.abs(log(x) - expected).max() < 1e-14
    some = expected != 0
    assert np.abs(log(x) / np.where(some, expected, 1) - 1)[some].max() < 5e-16


@pytest.mark.parametrize(
    ("logits", "expected"),
    [
        ([1.0, 3.0, -np.inf], [4.0, 0.0, HELD]),
        ([np.inf, 3.0, np.inf], [0.0, HELD, 0.0]),
        ([-3e38, 3e38], [HELD, 0.0]),
    ],
)
def test_distances(logits: list[float], expected: list[float]) -> None:
    got = distances(np.array(logits, np.float32), 0.5)
    assert got == pytest.approx(expected, rel=1e-7)


def test_a_tiny_temperature_leaves_only_the_best() -> None:
    assert distances(np.array([1.0, 2.0], np.float32), 1e-320).tolist() == [HELD, 0.0]
