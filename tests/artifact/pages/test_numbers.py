"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.artifact.pages.numbers import NOTHING, count, number, percent, seconds, with_unit

SPACE = "\u202f"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, NOTHING),
        (0, "0.00"),
        (0.000862, "0.000862"),
        (1.00041, "1.00"),
        (12.345, "12.3"),
        (999.9, "1,000"),
        (0.9999, "1.00"),
        (1234.5, "1,234"),
        (-0.5, "\u22120.500"),
        (1.5e-8, f"1.50{SPACE}\u00d7{SPACE}10⁻⁸"),
        (2.5e12, f"2.50{SPACE}\u00d7{SPACE}10¹²"),
        (math.inf, "∞"),
        (math.nan, NOTHING),
    ],
)
def test_three_digits(value: float | None, shown: str) -> None:
    assert number(value) == shown


@given(st.floats(min_value=1e-4, max_value=999))
def test_digits_are_those_of_python(value: float) -> None:
    assert float(number(value).replace(",", "")) == pytest.approx(float(f"{value:.3g}"), rel=1e-9)


def test_units() -> None:
    assert with_unit(5.25, "GB/s") == f"5.25{SPACE}GB/s"
    assert with_unit(None, "GB/s") == NOTHING
    assert percent(0.1234) == f"12.3{SPACE}%"
    assert percent(None) == NOTHING
    assert count(-1234567) == "\u22121,234,567"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, NOTHING),
        (0.00005, f"0.05{SPACE}ms"),
        (0.85, f"850{SPACE}ms"),
        (4.21, f"4.2{SPACE}s"),
        (720, f"12{SPACE}min"),
    ],
)
def test_times(value: float | None, shown: str) -> None:
    assert seconds(value) == shown
