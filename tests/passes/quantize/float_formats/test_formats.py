"""Formats of few bits: their values and scales against `ml_dtypes` and the definitions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from optc.passes.numerics.rounding import Float32
from optc.passes.quantize.float_formats.formats import (
    FORMATS,
    FP8,
    INT8,
    MXFP4,
    NF4,
    NVFP4,
    Format,
)
from tests.support import oracle

EVERY = sorted(FORMATS)


def nearest(form: Format, x: Float32) -> Float32:
    """By the distance to each value; of two at the same distance both are right."""
    return np.asarray(form.levels[np.abs(x[:, None] - form.levels).argmin(axis=1)])


@pytest.mark.parametrize("name", EVERY)
def test_the_nearest_value_is_found(name: str) -> None:
    form = FORMATS[name]
    top = float(form.levels[-1])
    x = np.random.default_rng(0).uniform(-1.3 * top, 1.3 * top, 4000).astype(np.float32)
    small = (x * np.float32(1e-3)).astype(np.float32)
    for values in (x, small, form.levels, np.zeros(3, np.float32)):
        found = form.nearest(values)
        assert np.isin(found, form.levels).all()
        want = nearest(form, values)
        np.testing.assert_array_equal(np.abs(found - values), np.abs(want - values))


def test_values_of_the_types() -> None:
    np.testing.assert_array_equal(MXFP4.levels[MXFP4.levels >= 0], oracle.E2M1)
    np.testing.assert_array_equal(NVFP4.levels, MXFP4.levels)
    assert (len(NF4.levels), len(FP8.levels), len(INT8.levels)) == (16, 253, 255)
    assert (NF4.levels[7], FP8.levels[-1], INT8.levels[0]) == (0.0, 448.0, -127.0)
    assert (np.diff(NF4.levels) > 0).all()


def test_halfway_is_the_even_mantissa_of_floats() -> None:
    halves = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -5.0], np.float32)
    np.testing.assert_array_equal(MXFP4.nearest(halves), oracle.e2m1(halves))
    np.testing.assert_array_equal(FP8.nearest(np.array([17.0, 19.0], np.float32)), [16.0, 20.0])


@pytest.mark.parametrize("name", EVERY)
def test_scales_are_what_the_type_stores(name: str) -> None:
    peak = np.exp(np.random.default_rng(1).uniform(-6, 4, 200)).astype(np.float32)
    candidates = list(FORMATS[name].scales(peak))
    stored = {
        "mxfp4": ml_dtypes.float8_e8m0fnu,
        "nvfp4": ml_dtypes.float8_e4m3fn,
    }.get(name, np.float16)
    for scales in candidates:
        assert scales.dtype == np.float32
        np.testing.assert_array_equal(scales.astype(stored).astype(np.float32), scales)
    assert len(candidates) == {"nvfp4": 7, "nf4": 5, "mxfp4": 2}.get(name, 1)


def test_the_plain_scale_comes_first() -> None:
    peak = np.array([3.0, 8.0, 11.9, 0.75], np.float32)
    first, second = MXFP4.scales(peak)
    np.testing.assert_array_equal(first, 2.0 ** (np.floor(np.log2(peak)) - 2))
    np.testing.assert_array_equal(second, 2 * first)
    np.testing.assert_array_equal(next(NVFP4.scales(peak)), oracle.e4m3(peak / np.float32(6)))
    np.testing.assert_array_equal(next(NF4.scales(peak)), peak.astype(np.float16))


@pytest.mark.parametrize("name", EVERY)
def test_groups_of_zeros_have_a_finite_scale(name: str) -> None:
    for scales in FORMATS[name].scales(np.zeros(2, np.float32)):
        assert np.isfinite(scales).all()
        assert (FORMATS[name].nearest(np.zeros(2, np.float32)) * scales == 0).all()


def test_labels() -> None:
    assert (NF4.label, FP8.label) == ("nf4 in groups of 64", "fp8 per channel")
