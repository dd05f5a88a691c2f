"""Ranges reach from the first to the last percentile, and bounds stand where they are."""

from __future__ import annotations

import pytest

from optc.artifact.pages.charts.ranges import Range, ranges
from tests.artifact.pages.charts.drawing import SVG, places, read_drawing, shapes, texts


def test_ranges() -> None:
    rows = [Range("TTFT", (10.0, 20.0, 100.0), 50.0), Range("TPOT", (5.0,))]
    root = read_drawing(ranges("r", "t", "d", rows, "ms"))
    bars = shapes(root, "rect", "soft")
    (bound,) = shapes(root, "line", "bound")
    assert bars[0]["x"] < bound["x1"] < bars[0]["x"] + bars[0]["width"]
    decade = bars[0]["width"]
    assert bound["x1"] - bars[0]["x"] == pytest.approx(0.699 * decade, rel=0.01)
    assert bars[1]["width"] == 1
    assert len(shapes(root, "circle", "point")) == 2
    assert "bound 50.0" in texts(root, "label")


def test_rows_are_named_at_their_left_and_times_below() -> None:
    rows = [Range("TTFT", (10.0, 100.0), 50.0), Range("TPOT", (5.0,))]
    root = read_drawing(ranges("r", "t", "d", rows, "ms"))
    assert texts(root, "name") == ["ms"]
    bars = shapes(root, "rect", "soft")
    axis, *_ = shapes(root, "line", "axis")
    named = [one for one in root.iter(f"{SVG}text") if one.text in ("TTFT", "TPOT")]
    for bar, text in zip(bars, named, strict=True):
        assert 0 < axis["x1"] - float(text.attrib["x"]) < 24, "it ends before the axis begins"
        assert bar["y"] < float(text.attrib["y"]) < bar["y"] + bar["height"]
        assert bar["y"] + bar["height"] < axis["y1"]
    (bound,) = shapes(root, "line", "bound")
    _, base = places(root, "label")["bound 50.0"]
    assert 0 < bound["y1"] - base < 6, "just above its line"
    assert bound["y1"] < bars[0]["y"] < bars[0]["y"] + bars[0]["height"] < bound["y2"]
