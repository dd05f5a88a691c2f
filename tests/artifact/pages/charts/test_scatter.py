"""Candidates within both bounds lie in the corner that is drawn."""

from __future__ import annotations

import pytest

from optc.artifact.pages.charts.canvas import text_width
from optc.artifact.pages.charts.scatter import Axis, Candidate, scatter
from tests.artifact.pages.charts.drawing import places, read_drawing, shapes, texts

POINTS = [
    Candidate(100.0, 10.0, 1.0, "a", chosen=True),
    Candidate(500.0, 10.0, 0.2, "b"),
    Candidate(100.0, 90.0, 0.6, "c"),
]


def test_within_the_bounds() -> None:
    root = read_drawing(scatter("s", "t", "d", POINTS, Axis("x", 200.0), Axis("y", 50.0)))
    (corner,) = shapes(root, "rect", "within")
    right = corner["x"] + corner["width"]
    (ring,) = shapes(root, "circle", "ring")
    (late,) = shapes(root, "circle", "faint")
    slow = shapes(root, "circle", "point")[0]
    assert ring["cx"] < right < late["cx"]
    assert slow["cy"] < corner["y"] < ring["cy"]
    assert "recommended" in texts(root, "label")
    assert len(shapes(root, "line", "bound")) == 2


@pytest.mark.parametrize("bound", [None, 50.0])
def test_bounds_that_there_are_not(bound: float | None) -> None:
    root = read_drawing(scatter("s", "t", "d", POINTS[1:], Axis("x"), Axis("y", bound)))
    assert len(shapes(root, "rect", "within")) == (bound is not None)
    assert shapes(root, "circle", "ring") == []


def test_axes_and_bounds_are_named() -> None:
    root = read_drawing(scatter("s", "t", "d", POINTS, Axis("x", 200.0), Axis("y", 50.0)))
    assert texts(root, "name") == ["y", "x"]
    grid = shapes(root, "line", "grid")
    assert len(grid) > 1
    (corner,) = shapes(root, "rect", "within")
    assert {line["x1"] for line in grid} == {corner["x"]}
    across, up = shapes(root, "line", "bound")
    found = places(root, "label")
    left, base = found["200 at most"]
    assert 0 < left - across["x1"] < 12, "just beside its line"
    assert 0 < base - across["y2"] < 16, "at the top of it"
    left, base = found["50.0 at most"]
    assert 0 < up["y1"] - base < 12, "just above its line"
    assert left > corner["x"]


@pytest.mark.parametrize("chosen", [100.0, 500.0])
def test_the_recommended_one_is_named_beside_its_ring(chosen: float) -> None:
    points = [Candidate(x, 10.0, 1.0, "", chosen=x == chosen) for x in (100.0, 500.0)]
    root = read_drawing(scatter("s", "t", "d", points, Axis("x"), Axis("y")))
    (ring,) = shapes(root, "circle", "ring")
    left, base = places(root, "label")["recommended"]
    right = left + text_width("recommended")
    gap = left - ring["cx"] if chosen == 100.0 else ring["cx"] - right
    assert ring["r"] < gap < 2 * ring["r"]
    assert abs(base - ring["cy"]) < 6


def test_the_recommended_one_is_larger() -> None:
    root = read_drawing(scatter("s", "t", "d", POINTS, Axis("x"), Axis("y")))
    other, chosen = shapes(root, "circle", "point")
    (faint,) = shapes(root, "circle", "faint")
    (ring,) = shapes(root, "circle", "ring")
    assert other["r"] == faint["r"] < chosen["r"] < ring["r"]
    assert (chosen["cx"], chosen["cy"]) == (ring["cx"], ring["cy"])
