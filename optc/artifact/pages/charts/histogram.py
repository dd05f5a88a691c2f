"""A histogram over bins of equal ratio, with marks at values that matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optc.artifact.pages.charts.axes import x_axis, y_axis
from optc.artifact.pages.charts.canvas import WIDTH, Canvas, rows_of_labels, within
from optc.artifact.pages.charts.scale import Scale, linear, logarithmic
from optc.artifact.pages.markup import Element
from optc.artifact.pages.numbers import count, number


@dataclass(frozen=True)
class Bin:
    """Values from ``low`` up to ``high``, both positive, and how many there are."""

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Mark:
    """A value that a line marks; a bound's is dashed."""

    value: float
    label: str
    bound: bool = False


def histogram(
    ident: str, title: str, text: str, bins: Sequence[Bin], marks: Sequence[Mark], unit: str
) -> Element:
    """Bars over a logarithmic axis.

    Args:
        ident: Unique in a page.
        title: What it shows.
        text: What one sees in it.
        bins: In order, at least one.
        marks: Values that are marked, positive.
        unit: Of the values.
    """
    ordered = sorted(marks, key=lambda mark: mark.value)
    low = min([bins[0].low, *(mark.value for mark in ordered)])
    high = max([bins[-1].high, *(mark.value for mark in ordered)])
    x = logarithmic(low, high, 56, WIDTH - 16)
    rows = rows_of_labels([(within(x(m.value), m.label), m.label) for m in ordered])
    top = 34 + 16 * (max(rows, default=0) + 1)
    bottom = top + 180.0
    y = linear(0, max(one.count for one in bins) or 1, bottom, top)
    canvas = Canvas(ident, title, text, bottom + 44)
    y_axis(canvas, y, x, "tokens")
    for one in bins:
        _bar(canvas, x, y, one)
    for mark, row in zip(ordered, rows, strict=True):
        place, above = x(mark.value), top - 10 - 16 * row
        canvas.line(place, above + 4, place, bottom, "bound" if mark.bound else "mark")
        canvas.label(place, above, mark.label)
    x_axis(canvas, x, bottom, unit, lambda value: number(value, 1), about=8)
    return canvas.svg()


def _bar(canvas: Canvas, x: Scale, y: Scale, one: Bin) -> None:
    if not one.count:
        return
    left, right = x(one.low), x(one.high)
    height = max(1.5, y.start - y(one.count))  # that there are any is to be seen
    hint = f"{number(one.low)} to {number(one.high)}: {count(one.count)}"
    canvas.rect(left + 0.5, y.start - height, max(right - left - 1, 0.5), height, "fill", hint)
