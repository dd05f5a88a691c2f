"""A value for each layer, in order, some of which may be missing."""

from __future__ import annotations

from collections.abc import Sequence

from optc.artifact.pages.charts.axes import tick_text, x_axis, y_axis
from optc.artifact.pages.charts.canvas import WIDTH, Canvas
from optc.artifact.pages.charts.scale import linear
from optc.artifact.pages.markup import Element
from optc.artifact.pages.numbers import with_unit


def levels(ident: str, title: str, text: str, values: Sequence[float | None], unit: str) -> Element:
    """Points joined in order; the lowest has its figure beside it. At least one is there."""
    known = [value for value in values if value is not None]
    lowest = min(known)
    room = max(0.1 * (max(known) - lowest), 0.5)
    x = linear(-0.5, len(values) - 0.5, 48, WIDTH - 16)
    y = linear(lowest - 3 * room, max(known) + room, 200, 34)  # below is a label
    canvas = Canvas(ident, title, text, 244)
    y_axis(canvas, y, x, unit)
    for run in _runs(values):
        canvas.path([(x(index), y(value)) for index, value in run], "line")
    marked = next(index for index, value in enumerate(values) if value == lowest)
    for index, value in enumerate(values):
        if value is not None:
            hint = f"layer {index}: {with_unit(value, unit)}"
            kind = "point" if index == marked else "fill"
            canvas.dot(x(index), y(value), 5 if index == marked else 3.5, kind, hint)
    canvas.label(x(marked), y(lowest) + 20, with_unit(lowest, unit))
    whole = lambda value: tick_text(value) if value == int(value) else ""  # noqa: E731
    x_axis(canvas, x, 200, "layer", whole, about=min(12, len(values)))
    return canvas.svg()


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Neighbours that are there."""
    runs: list[list[tuple[int, float]]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((index, value))
    return [run for run in runs if len(run) > 1]
