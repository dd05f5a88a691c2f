"""Bars are as high as their counts, and marks stand at their values."""

from __future__ import annotations

import pytest

from optc.artifact.pages.charts.histogram import Bin, Mark, histogram
from tests.artifact.pages.charts.drawing import hints, read_drawing, shapes, texts

BINS = [Bin(1e-4, 1e-3, 10), Bin(1e-3, 1e-2, 40), Bin(1e-2, 1e-1, 0), Bin(1e-1, 1.0, 1)]


def test_bars() -> None:
    root = read_drawing(histogram("h", "t", "d", BINS, [], "nats"))
    bars = shapes(root, "rect", "fill")
    assert [bar["height"] for bar in bars] == pytest.approx([45, 180, 4.5], abs=0.1)
    assert {round(bar["y"] + bar["height"], 1) for bar in bars} == {bars[0]["y"] + 45}
    widths = [bar["width"] for bar in bars]
    assert widths == pytest.approx([widths[0]] * 3, abs=0.11)
    assert hints(root)[1] == "0.00100 to 0.0100: 40"
    assert {"tokens", "nats"} <= set(texts(root))


def test_marks_that_would_overlap_stand_above_each_other() -> None:
    marks = [Mark(2e-3, "mean 0.002"), Mark(2.1e-3, "bound 0.0021", bound=True), Mark(0.5, "max")]
    root = read_drawing(histogram("h", "t", "d", BINS, marks, "nats"))
    (bound,) = shapes(root, "line", "bound")
    mean, largest = shapes(root, "line", "mark")
    assert mean["x1"] < bound["x1"] < largest["x1"]
    assert mean["y1"] > bound["y1"]
    assert largest["y1"] == mean["y1"]
    assert texts(root, "label") == ["mean 0.002", "bound 0.0021", "max"]


def test_marks_beyond_the_bins_widen_the_axis() -> None:
    root = read_drawing(histogram("h", "t", "d", BINS, [Mark(1e3, "max 1,000")], "nats"))
    (mark,) = shapes(root, "line", "mark")
    assert mark["x1"] > max(bar["x"] + bar["width"] for bar in shapes(root, "rect", "fill"))


def test_the_axis_reaches_from_the_first_bin_to_the_last() -> None:
    root = read_drawing(histogram("h", "t", "d", BINS, [], "nats"))
    bars = shapes(root, "rect", "fill")
    axis, *_ = shapes(root, "line", "axis")
    assert bars[0]["x"] == pytest.approx(axis["x1"], abs=1)
    assert bars[-1]["x"] + bars[-1]["width"] == pytest.approx(axis["x2"], abs=1)
    assert {line["x1"] for line in shapes(root, "line", "grid")} == {axis["x1"]}
    assert axis["y1"] == pytest.approx(bars[0]["y"] + bars[0]["height"], abs=0.1)
