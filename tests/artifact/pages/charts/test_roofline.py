"""Points lie on their roof where they reach it, and below where they do not."""

from __future__ import annotations

import math
import re
from itertools import combinations

import pytest

from optc.artifact.pages.charts.canvas import text_width
from optc.artifact.pages.charts.roofline import Work, roofline
from tests.artifact.pages.charts.drawing import SVG, places, read_drawing, shapes, texts

READ, PEAKS = 50.0, {"int8": 1000.0, "fp32": 200.0}


def drawn(*work: Work) -> tuple[list[dict[str, float]], list[tuple[float, float]]]:
    """The points, and the places that the highest roof goes through, from the right."""
    root = read_drawing(roofline("r", "t", "d", READ, PEAKS, work))
    roofs = [one for one in root.iter(f"{SVG}path") if one.get("class") == "roof"]
    places = [
        (float(x), float(y))
        for roof in roofs
        for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", roof.get("d") or "")
    ]
    return shapes(root, "circle", "point"), places


def test_on_the_roof() -> None:
    left = Work("on the slope", 2.0, 2.0 * READ, "")
    right = Work("on the flat", 100.0, 1000.0, "")
    (slope, flat), places = drawn(left, right)
    ridge, end, start, top = places
    assert top == ridge
    assert flat["cy"] == pytest.approx(ridge[1], abs=0.2)
    assert flat["cy"] == pytest.approx(end[1], abs=0.2)
    share = (slope["cx"] - start[0]) / (ridge[0] - start[0])
    assert slope["cy"] == pytest.approx(start[1] + share * (ridge[1] - start[1]), abs=0.3)


def test_below_the_roof() -> None:
    half = Work("half", 2.0, READ, "")
    (point,), places = drawn(half)
    ridge, _, start, _ = places
    share = (point["cx"] - start[0]) / (ridge[0] - start[0])
    assert point["cy"] > start[1] + share * (ridge[1] - start[1]) + 5


def test_labels_of_steps_do_not_overlap() -> None:
    work = [Work(f"decode {n}", 2.0, 80.0 + n, "", whole=True) for n in range(4)]
    work.append(Work("a kernel", 2.0, 80.0, "a hint", whole=False))
    root = read_drawing(roofline("r", "t", "d", READ, PEAKS, work))
    assert len(shapes(root, "circle", "faint")) == 1
    labels = [one for one in root.iter(f"{SVG}text") if one.get("class") == "label"]
    assert len(labels) == 4
    for one, other in combinations(labels, 2):
        x, y = (abs(float(one.attrib[n]) - float(other.attrib[n])) for n in "xy")
        assert x >= text_width("decode 0") - 0.1 or y >= 14
    assert {"int8, 1,000 Gop/s", "fp32, 200 Gop/s", "read, 50 GB/s"} <= set(texts(root, "tick"))


def test_the_rate_axis_begins_below_and_ends_above_all_that_is_drawn() -> None:
    """At a third of the slowest and at 1.6 times the fastest, on a scale of equal ratios."""
    slow, fast = Work("slow", 2.0, 20.0, ""), Work("fast", 2.0, 2000.0, "")
    root = read_drawing(roofline("r", "t", "d", READ, PEAKS, [slow, fast]))
    low, high = (point["cy"] for point in shapes(root, "circle", "point"))
    bottom = shapes(root, "line", "axis")[0]["y1"]
    decade = (low - high) / 2
    assert (bottom - low) / decade == pytest.approx(math.log10(3), abs=0.01)
    assert (high - 34) / decade == pytest.approx(math.log10(1.6), abs=0.01)
    assert texts(root, "name") == ["Gop/s", "operations for each byte read"]


def test_roofs_are_named_where_they_are() -> None:
    root = read_drawing(roofline("r", "t", "d", READ, PEAKS, [Work("a", 2.0, 50.0, "")]))
    found = places(root, "tick")
    _, lines = drawn(Work("a", 2.0, 50.0, ""))
    ridge, _, start, _ = lines
    left, base = found["int8, 1,000 Gop/s"]
    assert 0 < ridge[1] - base < 14, "just above its roof"
    left, base = found["read, 50 GB/s"]
    right = left + text_width("read, 50 GB/s")
    middle = (start[0] + ridge[0]) / 2, (start[1] + ridge[1]) / 2
    assert 5 < middle[0] - right < 20, "beside the middle of the slope"
    assert 0 < middle[1] - base < 14


def test_a_label_leaves_the_drawing_on_no_side() -> None:
    name = "a step with a long name"
    for intensity in (0.3, 1e3):
        read_drawing(roofline("r", "t", "d", READ, PEAKS, [Work(name, intensity, 20.0, "")]))


def test_the_axis_of_intensities_ends_at_three_times_the_ridge() -> None:
    """So that some of the flat roof is seen, and farther where a point lies there."""
    slow, fast = Work("slow", 1.0, 20.0, ""), Work("fast", 10.0, 20.0, "")
    root = read_drawing(roofline("r", "t", "d", READ, PEAKS, [slow, fast]))
    left, right = (point["cx"] for point in shapes(root, "circle", "point"))
    end, ridge = shapes(root, "line", "axis")[0]["x2"], 1000.0 / READ
    assert (end - left) / (right - left) == pytest.approx(math.log10(3 * ridge), abs=0.01)
    far = Work("far", 1e4, 20.0, "")
    root = read_drawing(roofline("r", "t", "d", READ, PEAKS, [far]))
    (point,) = shapes(root, "circle", "point")
    assert point["cx"] == shapes(root, "line", "axis")[0]["x2"]
