"""Candidates by two figures of which less is better, within bounds on both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optc.artifact.pages.charts.axes import tick_text, x_axis, y_axis
from optc.artifact.pages.charts.canvas import WIDTH, Canvas
from optc.artifact.pages.charts.scale import Scale, logarithmic
from optc.artifact.pages.markup import Element
from optc.artifact.pages.numbers import number


@dataclass(frozen=True)
class Candidate:
    """A point; ``good`` is its share of 1, by which it is filled; one is ``chosen``."""

    x: float
    y: float
    good: float
    hint: str
    chosen: bool = False


@dataclass(frozen=True)
class Axis:
    """A name with its unit, and a bound; None bounds nothing."""

    name: str
    bound: float | None = None


def scatter(
    ident: str,
    title: str,
    text: str,
    candidates: Sequence[Candidate],
    across: Axis,
    up: Axis,
) -> Element:
    """Points over two logarithmic axes; at least one, all positive."""
    x = _scale([one.x for one in candidates], across, 64, WIDTH - 24)
    y = _scale([one.y for one in candidates], up, 330, 34)
    canvas = Canvas(ident, title, text, 374)
    _bounds(canvas, x, y, across, up)
    y_axis(canvas, y, x, up.name)
    for one in sorted(candidates, key=lambda one: (one.chosen, one.good)):
        kind = "point" if one.chosen or one.good >= 0.5 else "faint"
        canvas.dot(x(one.x), y(one.y), 7 if one.chosen else 4.5, kind, one.hint)
        if one.chosen:
            canvas.dot(x(one.x), y(one.y), 11, "ring")
            right = x(one.x) < (x.start + x.end) / 2
            place, anchor = (x(one.x) + 16, "start") if right else (x(one.x) - 16, "end")
            canvas.text(place, y(one.y) + 4, "recommended", anchor=anchor, kind="label")
    x_axis(canvas, x, 330, across.name, tick_text)
    return canvas.svg()


def _scale(values: Sequence[float], axis: Axis, start: float, end: float) -> Scale:
    bound = [axis.bound] if axis.bound is not None and axis.bound > 0 else []
    return logarithmic(min([*values, *bound]) / 1.4, max([*values, *bound]) * 1.4, start, end)


def _bounds(canvas: Canvas, x: Scale, y: Scale, across: Axis, up: Axis) -> None:
    """The corner within both bounds, and a line at each."""
    right = x.end if across.bound is None else x(across.bound)
    top = y.end if up.bound is None else y(up.bound)
    if across.bound is None and up.bound is None:
        return
    canvas.rect(x.start, top, right - x.start, y.start - top, "within")
    if across.bound is not None:
        canvas.line(right, y.start, right, y.end, "bound")
        label = f"{number(across.bound)} at most"
        canvas.text(right + 6, y.end + 10, label, kind="label")
    if up.bound is not None:
        canvas.line(x.start, top, x.end, top, "bound")
        canvas.text(x.end, top - 6, f"{number(up.bound)} at most", anchor="end", kind="label")
