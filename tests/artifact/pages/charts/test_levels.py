"""A point a layer, gaps where there is none, and the lowest marked."""

from __future__ import annotations

from optc.artifact.pages.charts.levels import levels
from tests.artifact.pages.charts.drawing import SVG, hints, read_drawing, shapes, texts


def test_levels() -> None:
    root = read_drawing(levels("l", "t", "d", [40.0, 41.0, None, 30.0, 35.0], "dB"))
    points = shapes(root, "circle", "fill")
    (lowest,) = shapes(root, "circle", "point")
    assert len(points) == 3
    assert all(lowest["cy"] > point["cy"] for point in points)
    assert texts(root, "label") == ["30.0\u202fdB"]
    lines = [one.get("d") or "" for one in root.iter(f"{SVG}path")]
    assert [line.count("L") for line in lines] == [1, 1]
    assert hints(root)[2] == "layer 3: 30.0\u202fdB"


def test_a_single_layer_and_equal_ones() -> None:
    assert len(shapes(read_drawing(levels("l", "t", "d", [40.0], "dB")), "circle", "point")) == 1
    root = read_drawing(levels("l", "t", "d", [40.0] * 3, "dB"))
    assert len({p["cy"] for k in ("fill", "point") for p in shapes(root, "circle", k)}) == 1


def test_axes_are_named_and_numbered() -> None:
    root = read_drawing(levels("l", "t", "d", [40.0, 41.0, 30.0], "dB"))
    assert texts(root, "name") == ["dB", "layer"]
    assert len(shapes(root, "line", "grid")) > 1
    ticks = texts(root, "tick")
    assert ticks[-3:] == ["0", "1", "2"], "a layer has a whole number"
    assert {"30", "40"} <= set(ticks)
    (lowest,) = shapes(root, "circle", "point")
    assert all(lowest["r"] > one["r"] for one in shapes(root, "circle", "fill"))
