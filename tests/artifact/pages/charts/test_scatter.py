"""Candidates within both bounds lie in the corner that is drawn."""

from __future__ import annotations

import pytest

from optc.artifact.pages.charts.scatter import Axis, Candidate, scatter
from tests.artifact.pages.charts.drawing import read_drawing, shapes, texts

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
