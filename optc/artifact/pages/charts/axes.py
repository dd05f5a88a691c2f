"""Axes of a drawing: ticks below, grid lines with their values at the left, names of both."""

from __future__ import annotations

from collections.abc import Callable

from optc.artifact.pages.charts.canvas import Canvas, within
from optc.artifact.pages.charts.scale import Scale
from optc.artifact.pages.numbers import MINUS, number

#: Text of a tick.
Format = Callable[[float], str]


def tick_text(value: float) -> str:
    """A round value with as few digits as it has."""
    if value and not 1e-3 <= abs(value) < 1e6:
        return number(value, 1)
    return f"{value:,.10g}".replace("-", MINUS)


def x_axis(
    canvas: Canvas, x: Scale, y: float, name: str, text: Format = tick_text, about: int = 6
) -> None:
    """A line at ``y`` with ticks below it; the name stands below at the right."""
    canvas.line(x.start, y, x.end, y, "axis")
    for tick in x.ticks(about):
        canvas.line(x(tick), y, x(tick), y + 4, "axis")
        middle = within(x(tick), text(tick), canvas.width)
        canvas.text(middle, y + 18, text(tick), anchor="middle", kind="tick")
    canvas.text(x.end, y + 36, name, anchor="end", kind="name")


def y_axis(
    canvas: Canvas, y: Scale, x: Scale, name: str, text: Format = tick_text, about: int = 4
) -> None:
    """Grid lines across ``x`` with their values at the left; the name stands above all."""
    for tick in y.ticks(about):
        canvas.line(x.start, y(tick), x.end, y(tick), "grid")
        canvas.text(x.start - 8, y(tick) + 4, text(tick), anchor="end", kind="tick")
    canvas.text(0, 12, name, kind="name")
