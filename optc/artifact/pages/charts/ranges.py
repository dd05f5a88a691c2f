"""Percentiles as ranges: from the median to the slowest in a hundred, on one axis of times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optc.artifact.pages.charts.axes import tick_text, x_axis
from optc.artifact.pages.charts.canvas import WIDTH, Canvas, text_width
from optc.artifact.pages.charts.scale import logarithmic
from optc.artifact.pages.markup import Element
from optc.artifact.pages.numbers import number

_ROW = 34


@dataclass(frozen=True)
class Range:
    """A row.

    Attributes:
        label: At its left.
        values: Percentiles in order, positive, the median first.
        bound: What it must stay below; None bounds nothing.
    """

    label: str
    values: tuple[float, ...]
    bound: float | None = None


def ranges(ident: str, title: str, text: str, rows: Sequence[Range], unit: str) -> Element:
    """A bar from the first to the last value of each row, with points at all of them."""
    labels = 24 + max(text_width(row.label) for row in rows)
    every = [value for row in rows for value in row.values]
    bounds = [row.bound for row in rows if row.bound is not None and row.bound > 0]
    x = logarithmic(min(every + bounds) / 1.3, max(every + bounds) * 1.3, labels, WIDTH - 40)
    bottom = _ROW * len(rows) + 16.0
    canvas = Canvas(ident, title, text, bottom + 44)
    for tick in x.ticks(6):
        canvas.line(x(tick), 8, x(tick), bottom, "grid")
    for index, row in enumerate(rows):
        y = _ROW * index + 28.0
        canvas.text(labels - 12, y + 4, row.label, anchor="end")
        first, last = x(row.values[0]), x(row.values[-1])
        canvas.rect(first, y - 5, max(last - first, 1), 10, "soft")
        for value in row.values:
            kind, radius = ("point", 5.5) if value == row.values[0] else ("faint", 3.5)
            canvas.dot(x(value), y, radius, kind, f"{row.label}: {number(value)} {unit}")
        if row.bound is not None and row.bound > 0:
            place = x(row.bound)
            canvas.line(place, y - 13, place, y + 13, "bound")
            canvas.label(place, y - 15, f"bound {number(row.bound)}")
    x_axis(canvas, x, bottom, unit, tick_text)
    return canvas.svg()
