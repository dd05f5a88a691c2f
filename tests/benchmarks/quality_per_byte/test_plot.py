"""The plot is an SVG with a mark for each point that fits, where its figures put it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks.quality_per_byte.plot import Axes, svg
from benchmarks.quality_per_byte.points import Point

POINTS = [
    Point("optc", "small", "weights", 4_000_000, 3.0, 3.0, {"kl_mean": 0.1}),
    Point("optc", "large", "weights", 8_000_000, 6.0, 6.0, {"kl_mean": 0.001}),
    Point("llama.cpp", "Q4 & more", "engine", 6_000_000, 4.5, 4.5, {"kl_mean": 0.02}),
]
FLOAT = Point("optc", "fp32", "weights", 44_000_000, 32.0, 32.0, {"kl_mean": 0.0})


def titles(text: str) -> list[str]:
    """Of all marks."""
    root = ElementTree.fromstring(text)
    return [str(one.text) for one in root.iter("{http://www.w3.org/2000/svg}title")]


def test_every_point_that_fits_has_a_mark_with_its_figures() -> None:
    found = titles(svg([*POINTS, FLOAT], "a title"))
    assert len(found) == 3
    assert "llama.cpp Q4 & more (engine): KL 0.02, 6.00 MB, 4.50 bits" in found


def test_more_bytes_are_further_right_and_more_kl_is_higher() -> None:
    axes = Axes(POINTS)
    assert axes.x(4) < axes.x(6) < axes.x(8)
    assert axes.y(0.1) < axes.y(0.02) < axes.y(0.001)
    assert axes.x(6) - axes.x(3.0) == pytest.approx(axes.x(8) - axes.x(4))


def test_the_curve_goes_through_our_points() -> None:
    axes = Axes(POINTS)
    places = [f"{axes.x(mb):.1f},{axes.y(kl):.1f}" for mb, kl in ((4, 0.1), (8, 0.001))]
    assert f"M{places[0]}L{places[1]}" in svg(POINTS, "a title")


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(ValueError, match="no point to draw"):
        svg([FLOAT], "a title")
