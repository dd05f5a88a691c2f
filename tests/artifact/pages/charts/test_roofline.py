"""Points lie on their roof where they reach it, and below where they do not."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from optc.artifact.pages.charts.canvas import text_width
from optc.artifact.pages.charts.roofline import Work, roofline
from tests.artifact.pages.charts.drawing import SVG, read_drawing, shapes, texts

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
