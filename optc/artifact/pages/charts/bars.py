"""Horizontal bars with their labels at the left and their figures at their ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optc.artifact.pages.charts.canvas import WIDTH, Canvas, cut_to, text_width
from optc.artifact.pages.charts.scale import linear
from optc.artifact.pages.markup import Element

_ROW = 26


@dataclass(frozen=True)
class Bar:
    """A bar.

    Attributes:
        label: At its left.
        value: Its length.
        figure: At its end.
        light: The part of it at its end that is drawn lighter.
    """

    label: str
    value: float
    figure: str
    light: float = 0.0


def bars(ident: str, title: str, text: str, rows: Sequence[Bar]) -> Element:
    """One bar below the other, all from zero; at least one."""
    labels = min(240.0, 16 + max(text_width(row.label) for row in rows))
    figures = 16 + max(text_width(row.figure) for row in rows)
    x = linear(0, max(row.value for row in rows) or 1, labels, WIDTH - figures)
    canvas = Canvas(ident, title, text, _ROW * len(rows) + 8)
    for index, row in enumerate(rows):
        y = _ROW * index + 6.0
        dark = x(row.value - row.light)
        canvas.text(labels - 10, y + 13, cut_to(row.label, labels - 10), anchor="end")
        hint = f"{row.label}: {row.figure}"
        canvas.rect(labels, y, max(dark - labels, 0), 16, "fill", hint)
        canvas.rect(dark, y, max(x(row.value) - dark, 0), 16, "soft", hint)
        canvas.text(x(row.value) + 8, y + 13, row.figure, kind="figure")
    canvas.line(labels, 0, labels, canvas.height, "axis")
    return canvas.svg()
