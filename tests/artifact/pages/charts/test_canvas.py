"""Labels: how wide, how cut, and in which row."""

from __future__ import annotations

from optc.artifact.pages.charts.canvas import Canvas, cut_to, rows_of_labels, text_width
from tests.artifact.pages.charts.drawing import SVG, places, read_drawing, shapes, texts


def test_texts_that_fit_stay() -> None:
    assert cut_to("matmul", text_width("matmul")) == "matmul"
    assert cut_to("matmul_of_a_layer", 60) == "matmul_o…"
    assert cut_to("matmul", 20) == ""


def test_every_shape_is_drawn_where_it_is_said_to_be() -> None:
    canvas = Canvas("a", "A", "Shapes.", 50, width=200)
    canvas.rect(1, 2, 3, 4.25, "bar", "a hint")
    canvas.dot(5, 6, 7, "point", "another")
    canvas.line(1, 2, 30, 4, "grid")
    canvas.path([(1, 2), (3, 4)], "line")
    canvas.label(0, 9, "label")
    root = read_drawing(canvas.svg())
    assert root.attrib["viewBox"] == "0 0 200 50"
    assert shapes(root, "rect", "bar") == [{"x": 1, "y": 2, "width": 3, "height": 4.2}]
    assert shapes(root, "line", "grid") == [{"x1": 1, "y1": 2, "x2": 30, "y2": 4}]
    assert shapes(root, "circle", "point") == [{"cx": 5, "cy": 6, "r": 7}]
    assert [one.attrib["d"] for one in root.iter(f"{SVG}path")] == ["M1 2L3 4"]
    assert [one.text for one in root.iter(f"{SVG}title")] == ["A", "a hint", "another"]
    assert texts(root, "label") == ["label"]


def test_labels_take_the_first_row_that_is_free() -> None:
    places = [(100.0, "a" * 10), (110.0, "b" * 10), (120.0, "c" * 10), (190.0, "d" * 10)]
    assert rows_of_labels(places) == [0, 1, 2, 0]
    assert rows_of_labels([]) == []


def test_a_label_is_moved_as_far_as_it_needs_to_be_and_no_further() -> None:
    canvas = Canvas("a", "A", "Labels.", 50, width=200)
    for x, text in ((0, "at the left"), (100, "amid"), (200, "at the right")):
        canvas.label(x, 9, text)
    found = {text: left for text, (left, _) in places(read_drawing(canvas.svg()), "label").items()}
    assert abs(found["at the left"]) < 0.1
    assert abs(found["amid"] - (100 - text_width("amid") / 2)) < 0.1
    assert abs(found["at the right"] - (200 - text_width("at the right"))) < 0.1
