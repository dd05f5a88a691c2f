"""Labels: how wide, how cut, and in which row."""

from __future__ import annotations

from optc.artifact.pages.charts.canvas import cut_to, rows_of_labels, text_width


def test_texts_that_fit_stay() -> None:
    assert cut_to("matmul", text_width("matmul")) == "matmul"
    assert cut_to("matmul_of_a_layer", 60) == "matmul_o…"
    assert cut_to("matmul", 20) == ""


def test_labels_take_the_first_row_that_is_free() -> None:
    places = [(100.0, "a" * 10), (110.0, "b" * 10), (120.0, "c" * 10), (190.0, "d" * 10)]
    assert rows_of_labels(places) == [0, 1, 2, 0]
    assert rows_of_labels([]) == []
