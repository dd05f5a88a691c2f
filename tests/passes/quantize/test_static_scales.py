"""Scales that float16 has exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.passes.quantize.static_scales import beyond_scales, storable


@given(st.floats(0, 2.0**100, width=32))
def test_every_scale_is_one_of_float16_and_near(scale: float) -> None:
    found = storable(np.float32(scale))
    assert found.dtype == np.float32
    assert found == np.float32(np.float16(found))
    bounded = min(max(scale, 2.0**-14), 65504.0)
    assert abs(float(found) - bounded) <= bounded * 2.0**-11


def test_none_is_below_the_smallest_normal_number() -> None:
    np.testing.assert_array_equal(storable(np.float32([0, 2.0**-20, 1e9])), [2**-14, 2**-14, 65504])


@pytest.mark.parametrize(
    ("scale", "why"),
    [
        (2.0**-14, ""),
        (65504.0, ""),
        (0.9 * 2.0**-14, "its scale 5.49e-05 is beneath float16's normal numbers, so that bits"),
        (65505.0, "its scale 6.55e+04 exceeds float16, so that values would saturate"),
    ],
)
def test_why_a_scale_cannot_be_stored(scale: float, why: str) -> None:
    found = beyond_scales(scale)
    assert found.startswith(why)
    assert bool(found) == bool(why)
    assert bool(found) == (storable(np.float32(scale)) != np.float32(scale))
