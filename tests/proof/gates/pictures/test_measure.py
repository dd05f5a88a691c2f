"""Figures of a generator of images beside that of its source, whose denoisers are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from optc.artifact.tasks.image_generation import IMAGE_GENERATION
from optc.proof.gates.pictures.measure import Recorded, expected_of, measure_generator
from optc.runtime.diffusion.conventions import DiffusionConventions, NoiseLevels
from optc.runtime.diffusion.generator import ImageGenerator

LEVELS = NoiseLevels(tuple(np.linspace(0.99, 0.5, 16)), "sample")


class Denoiser:
    """Says that each pixel is so bright; counts its runs."""

    batch_invariant = False

    def __init__(self, bright: float = 0.5) -> None:
        self.bright, self.runs, self.closed = bright, 0, False

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        self.runs += 1
        return {"predicted": np.full_like(inputs["sample"], self.bright)}

    def close(self) -> None:
        self.closed = True


def generator(denoiser: Any) -> ImageGenerator:
    conventions = DiffusionConventions(LEVELS, (3, 4, 4))
    return ImageGenerator(denoiser, None, None, conventions, None, {})


def figures(denoiser: Denoiser, **bounds: float | None) -> dict[str, float | None]:
    recorded = Recorded(Denoiser())
    reference = generator(recorded)
    expected = expected_of(reference, recorded, 2)
    assert len(expected.images) == 2
    assert len(expected.calls) == 2 * 8
    found = generator(denoiser)
    results = measure_generator(found, denoiser, expected, generator(Denoiser()), bounds, "one")
    assert [one.name for one in results] == list(IMAGE_GENERATION.gates)
    assert {one.engine for one in results} == {"one"}
    return {one.name: one.value for one in results}


def test_without_a_difference_all_figures_are_at_their_best() -> None:
    found = figures(Denoiser())
    best = {"psnr_db": 100, "ssim": pytest.approx(1), "step_sqnr_db": 200}
    assert found == {**best, "generation_speedup": None}


def test_a_difference_shows_in_images_and_in_steps() -> None:
    found = figures(Denoiser(0.25))
    levels = round(1.5 * 127.5) - round(1.25 * 127.5)
    assert found["psnr_db"] == pytest.approx(20 * np.log10(255 / levels))
    assert found["step_sqnr_db"] == pytest.approx(20 * np.log10(0.5 / 0.25))
    assert found["ssim"] is not None
    assert 0.5 < found["ssim"] < 0.99


def test_a_step_without_a_number_is_no_number() -> None:
    recorded = Recorded(Denoiser())
    expected = expected_of(generator(recorded), recorded, 1)
    broken = Denoiser(float("inf"))
    results = measure_generator(
        *(generator(Denoiser()), broken, expected, generator(Denoiser())), {}, "one"
    )
    value = {one.name: one.value for one in results}["step_sqnr_db"]
    assert value is None or np.isnan(value)


def test_speed_is_measured_where_it_has_a_bound_by_one_image_of_two_steps() -> None:
    recorded, found, baseline = Recorded(Denoiser()), Denoiser(), Denoiser()
    expected = expected_of(generator(recorded), recorded, 2)
    bounds = {"generation_speedup": 1e-9}
    results = measure_generator(
        generator(found), found, expected, generator(baseline), bounds, "one"
    )
    assert baseline.runs == 3 * 2
    assert results[-1].passed
    assert found.runs == 2 * 8 + 2 * 8 + baseline.runs


def test_what_is_recorded_closes_its_executable() -> None:
    inside = Denoiser()
    Recorded(inside).close()
    assert inside.closed
