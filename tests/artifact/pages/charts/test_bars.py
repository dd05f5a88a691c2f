"""Bars are as long as their values, and lighter where they are said to be."""

from __future__ import annotations

import pytest

from optc.artifact.pages.charts.bars import Bar, bars
from tests.artifact.pages.charts.drawing import SVG, places, read_drawing, shapes, texts


def test_bars() -> None:
    rows = [Bar("long", 8.0, "8 MiB", light=2.0), Bar("short", 4.0, "4 MiB"), Bar("none", 0, "0 B")]
    root = read_drawing(bars("b", "t", "d", rows))
    dark, light = shapes(root, "rect", "fill"), shapes(root, "rect", "soft")
    unit = light[0]["width"] / 2
    assert [bar["width"] for bar in dark] == pytest.approx([6 * unit, 4 * unit, 0], abs=0.2)
    assert light[0]["x"] == pytest.approx(dark[0]["x"] + dark[0]["width"], abs=0.2)
    assert texts(root) == ["long", "8 MiB", "short", "4 MiB", "none", "0 B"]


def test_long_labels_are_cut() -> None:
    root = read_drawing(bars("b", "t", "d", [Bar("x" * 500, 1.0, "1 B")]))
    assert texts(root)[0].endswith("x…")
    assert len(texts(root)[0]) < 50


def test_labels_end_before_bars_and_figures_begin_behind_them() -> None:
    root = read_drawing(
        bars("b", "t", "d", [Bar("long", 8.0, "8 MiB"), Bar("short", 4.0, "4 MiB")])
    )
    (axis,) = shapes(root, "line", "axis")
    found = shapes(root, "rect", "fill")
    assert {bar["x"] for bar in found} == {axis["x1"]}
    assert (axis["y1"], axis["y2"]) == (0, float(root.attrib["viewBox"].split()[3]))
    first, second = found
    assert first["y"] + first["height"] < second["y"], "rows do not touch"
    lighter = shapes(root, "rect", "soft")
    assert {bar["height"] for bar in found} == {bar["height"] for bar in lighter}
    named = [one for one in root.iter(f"{SVG}text") if one.get("class") is None]
    assert all(5 < axis["x1"] - float(one.attrib["x"]) < 16 for one in named)
    for bar, (left, base) in zip(found, places(root, "figure").values(), strict=True):
        assert 4 < left - (bar["x"] + bar["width"]) < 12
        assert bar["y"] < base < bar["y"] + bar["height"]
