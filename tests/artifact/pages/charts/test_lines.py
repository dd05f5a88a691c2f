"""Series over requests at once."""

from __future__ import annotations

from optc.artifact.pages.charts.lines import Series, lines
from tests.artifact.pages.charts.drawing import hints, places, read_drawing, shapes, texts


def test_series() -> None:
    series = [Series("decode", (10.0, 40.0, None)), Series("prefill", (80.0, 80.0, 80.0), False)]
    root = read_drawing(lines("l", "t", "d", ["1", "8", "16"], series, "tokens/s"))
    first, second = shapes(root, "circle", "point")
    others = shapes(root, "circle", "other")
    assert first["cy"] > second["cy"] > others[0]["cy"]
    assert [other["cx"] for other in others[:2]] == [first["cx"], second["cx"]]
    assert texts(root, "label") == ["decode", "prefill"]
    assert "decode: 40.0 tokens/s" in hints(root)


def test_one_place_and_no_value() -> None:
    root = read_drawing(lines("l", "t", "d", ["1"], [Series("decode", (None,))], "tokens/s"))
    assert shapes(root, "circle", "point") == []


def test_an_axis_with_its_unit_and_all_places_below_it() -> None:
    series = [Series("decode", (10.0, 40.0))]
    root = read_drawing(lines("l", "t", "d", ["1", "8"], series, "tokens/s"))
    assert texts(root, "name") == ["tokens/s", "requests at once"]
    assert texts(root, "tick") == ["0", "10", "20", "30", "40", "1", "8"]
    grid = shapes(root, "line", "grid")
    assert len(grid) == 5
    first, second = shapes(root, "circle", "point")
    assert second["cy"] == grid[-1]["y1"], "the highest value stands at its line"
    assert {one["x1"] for one in grid} == {first["cx"]}
    assert grid[0]["y1"] < places(root, "tick")["1"][1], "places stand below the axis"


def test_names_stand_behind_the_last_point_and_do_not_overlap() -> None:
    series = [Series(name, (10.0, last)) for name, last in (("a", 20.0), ("b", 20.1), ("c", 5.0))]
    root = read_drawing(lines("l", "t", "d", ["1", "8"], series, "tokens/s"))
    found = places(root, "label")
    last = max(point["cx"] for point in shapes(root, "circle", "point"))
    assert {left - last for left, _ in found.values()} == {10.0}
    (_, a), (_, b), (_, c) = (found[name] for name in "abc")
    ends = {hint["cy"] for hint in shapes(root, "circle", "point") if hint["cx"] == last}
    assert min(abs(a - 4 - y) for y in ends) < 0.1, "beside its point"
    assert 14 <= b - a <= 16, "just below the other's"
    assert min(abs(c - 4 - y) for y in ends) < 0.1
