"""Ticks: their texts, and where axes put them."""

from __future__ import annotations

import pytest

from optc.artifact.pages.charts.axes import tick_text, x_axis, y_axis
from optc.artifact.pages.charts.canvas import Canvas
from optc.artifact.pages.charts.scale import linear
from tests.artifact.pages.charts.drawing import read_drawing, shapes, texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (2.5, "2.5"),
        (-3.0, "\u22123"),
        (12_000.0, "12,000"),
        (999_999.0, "999,999"),
        (1e-3, "0.001"),
        (5.6e-4, "0.0006"),
        (1e6, "1\u202f\u00d7\u202f10\u2076"),
        (-5.6e-4, "\u22120.0006"),
    ],
)
def test_texts_of_ticks(value: float, text: str) -> None:
    assert tick_text(value) == text


def test_axes_stand_where_scales_begin_and_end() -> None:
    canvas = Canvas("a", "A", "An axis.", 200)
    across, up = linear(0, 10, 100, 300), linear(0, 4, 150, 50)
    x_axis(canvas, across, 150, "rows")
    y_axis(canvas, up, across, "ms")
    root = read_drawing(canvas.svg())
    axis, *ticks = shapes(root, "line", "axis")
    assert axis == {"x1": 100, "y1": 150, "x2": 300, "y2": 150}
    assert ticks == [
        {"x1": across(t), "y1": 150, "x2": across(t), "y2": 154} for t in across.ticks(6)
    ]
    assert shapes(root, "line", "grid") == [
        {"x1": 100, "y1": up(t), "x2": 300, "y2": up(t)} for t in up.ticks(4)
    ]
    assert texts(root, "name") == ["rows", "ms"]
    places = [
        (float(one.attrib["x"]), float(one.attrib["y"]), one.attrib["text-anchor"])
        for one in root.iter("{http://www.w3.org/2000/svg}text")
    ]
    below = [(across(t), 168.0, "middle") for t in across.ticks(6)]
    beside = [(92.0, up(t) + 4, "end") for t in up.ticks(4)]
    assert places == [*below, (300.0, 186.0, "end"), *beside, (0.0, 12.0, "start")]


def test_the_text_of_a_tick_at_the_end_lies_within_the_drawing() -> None:
    canvas = Canvas("a", "A", "An axis.", 200, width=300)
    x_axis(canvas, linear(0, 1e5, 4, 296), 150, "rows")
    read_drawing(canvas.svg())
