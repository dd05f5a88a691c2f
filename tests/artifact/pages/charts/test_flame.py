"""Widths are times, rows are levels, and the dark line is the share of the roof."""

from __future__ import annotations

import pytest

from optc.artifact.pages.charts.canvas import WIDE
from optc.artifact.pages.charts.flame import Span, flame
from tests.artifact.pages.charts.drawing import hints, read_drawing, shapes, texts

WHOLE = Span(
    "a step",
    10.0,
    0.4,
    parts=(
        Span("matmuls", 6.0, 0.5, "6 ms", (Span("first", 4.0, 0.5), Span("second", 2.0, 0.25))),
        Span("the rest of it, with a name that fits nowhere", 1.0),
    ),
)


def test_a_step() -> None:
    root = read_drawing(flame("f", "t", "d", WHOLE))
    bars = shapes(root, "rect", "soft")
    unit = WIDE / 10
    expected = [(0, 10, 0), (0, 6, 1), (0, 4, 2), (4, 2, 2), (6, 1, 1)]
    found = [(b["x"] / unit, (b["width"] + 1) / unit, round(b["y"] / 30)) for b in bars]
    assert found == [pytest.approx(one, abs=0.01) for one in expected]
    dark = shapes(root, "rect", "fill")
    shares = [b["width"] / w["width"] for b, w in zip(dark, bars, strict=False)]
    assert shares == pytest.approx([0.4, 0.5, 0.5, 0.25], abs=0.002)
    assert texts(root) == ["a step", "matmuls", "first", "second", "the rest of i…"]
    assert "matmuls: 6 ms" in hints(root)


def test_parts_that_are_more_than_the_whole_stay_within() -> None:
    read_drawing(flame("f", "t", "d", Span("a", 1.0, parts=(Span("b", 5.0), Span("c", 5.0)))))
    read_drawing(flame("f", "t", "d", Span("a", 0.0)))
