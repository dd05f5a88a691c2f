"""Ranges reach from the first to the last percentile, and bounds stand where they are."""

from __future__ import annotations

import pytest

from optc.artifact.pages.charts.ranges import Range, ranges
from tests.artifact.pages.charts.drawing import read_drawing, shapes, texts


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
