"""Levels and steps beside a closed form: a denoiser that knows the sample."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from optc.errors import RequestError
from optc.runtime.diffusion.conventions import NoiseLevels
from optc.runtime.diffusion.solver import next_sample, steps_of

POWER = tuple(float(x) for x in np.cumprod(1 - np.linspace(1e-4, 0.02, 100)))


@pytest.mark.parametrize(
    ("prediction", "spacing", "fractions", "count"),
    [
        (prediction, spacing, fractions, count)
        for prediction, (spacing, fractions), count in itertools.product(
            ("epsilon", "v_prediction", "sample"),
            itertools.product(("leading", "trailing", "linspace"), (False, True)),
            (1, 7, 100),
        )
    ],
)
def test_a_perfect_denoiser_finds_the_sample(
    prediction: str, spacing: str, fractions: bool, count: int
) -> None:
    """Whatever it predicts: noise and sample of the line between both stay what they are."""
    levels = NoiseLevels(POWER, prediction, spacing, 0, fractions)  # type: ignore[arg-type]
    steps = steps_of(levels, count)
    random = np.random.default_rng(count)
    clean, dirt = random.standard_normal((2, 1, 3, 4, 5))
    assert np.all(np.diff(steps.times) < 0) if count > 1 else len(steps.times) == 1
    assert np.allclose(steps.signal**2 + steps.noise**2, 1)
    assert (steps.signal[-1], steps.noise[-1]) == (1, 0)
    sample = (steps.signal[0] * clean + steps.noise[0] * dirt).astype(np.float32)
    for index in range(count):
        signal, noise = steps.signal[index], steps.noise[index]
        predicted = {
            "epsilon": dirt,
            "sample": clean,
            "v_prediction": signal * dirt - noise * clean,
        }[prediction]
        sample = next_sample(levels, steps, index, sample, predicted.astype(np.float32))
        expected = steps.signal[index + 1] * clean + steps.noise[index + 1] * dirt
        assert np.allclose(sample, expected, atol=1e-5)
    assert np.allclose(sample, clean, atol=1e-5)


def test_a_last_step_may_leave_the_first_level() -> None:
    steps = steps_of(NoiseLevels(POWER, ends_clean=False), 5)
    assert steps.signal[-1] ** 2 == pytest.approx(POWER[0])


def test_a_predicted_sample_is_clipped() -> None:
    levels = NoiseLevels(POWER, "sample", clip=1.0)
    steps = steps_of(levels, 1)
    far = np.full((1, 1, 1, 1), 5, np.float32)
    assert next_sample(levels, steps, 0, far * 0, far).item() == 1


@pytest.mark.parametrize("count", [0, -3, 101])
def test_too_many_steps_or_none(count: int) -> None:
    with pytest.raises(RequestError, match=rf"{count} steps"):
        steps_of(NoiseLevels(POWER), count)


@pytest.mark.parametrize(
    ("spacing", "offset", "times"),
    [
        ("leading", 0, [75, 50, 25, 0]),
        ("leading", 1, [76, 51, 26, 1]),
        ("trailing", 0, [99, 74, 49, 24]),
        ("linspace", 0, [99, 66, 33, 0]),
    ],
)
def test_steps_stand_where_their_spacing_says(
    spacing: str, offset: int, times: list[float]
) -> None:
    """Table 2 of "Common Diffusion Noise Schedules and Sample Steps are Flawed"."""
    levels = NoiseLevels(POWER, "epsilon", spacing, offset, False)  # type: ignore[arg-type]
    assert steps_of(levels, 4).times.tolist() == times


@pytest.mark.parametrize(("fractions", "times"), [(True, [99, 49.5, 0]), (False, [99, 50, 0])])
def test_steps_between_two_that_were_trained(fractions: bool, times: list[float]) -> None:
    levels = NoiseLevels(POWER, "epsilon", "linspace", 0, fractions)
    assert steps_of(levels, 3).times.tolist() == times
    between = steps_of(levels, 3).signal[1] ** 2
    assert (between == pytest.approx(POWER[50])) is not fractions
    assert POWER[50] <= between + 1e-12
    assert between < POWER[49]
