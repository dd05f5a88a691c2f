"""Series over requests at once."""

from __future__ import annotations

from optc.artifact.pages.charts.lines import Series, lines
from tests.artifact.pages.charts.drawing import hints, read_drawing, shapes, texts


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
