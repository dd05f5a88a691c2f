"""Series over a few measured places, such as tokens/s over the requests at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optc.artifact.pages.charts.axes import y_axis
from optc.artifact.pages.charts.canvas import WIDTH, Canvas, text_width
from optc.artifact.pages.charts.scale import linear
from optc.artifact.pages.markup import Element
from optc.artifact.pages.numbers import number


@dataclass(frozen=True)
class Series:
    """Values in the order of the places; None where there is none.

    Attributes:
        name: At its end.
        values: Its values.
        main: Drawn in the accent's colour.
    """

    name: str
    values: tuple[float | None, ...]
    main: bool = True


def lines(
    ident: str, title: str, text: str, places: Sequence[str], series: Sequence[Series], unit: str
) -> Element:
    """Lines from zero over equally distant places; at least one place and one value."""
    names = 16 + max(text_width(one.name) for one in series)
    x = linear(0, max(len(places) - 1, 1), 64, WIDTH - names)
    known = [value for one in series for value in one.values if value is not None]
    y = linear(0, max([*known, 0.0]) or 1, 210, 34)
    canvas = Canvas(ident, title, text, 254)
    y_axis(canvas, y, x, unit)
    for index, place in enumerate(places):
        canvas.text(x(index), 228, place, anchor="middle", kind="tick")
    canvas.text(x.end, 246, "requests at once", anchor="end", kind="name")
    taken: list[float] = []
    for one in sorted(series, key=lambda one: not one.main):
        points = [(x(i), y(v), v) for i, v in enumerate(one.values) if v is not None]
        canvas.path([(left, top) for left, top, _ in points], "line" if one.main else "second")
        for left, top, value in points:
            kind = "point" if one.main else "other"
            canvas.dot(left, top, 4.5, kind, f"{one.name}: {number(value)} {unit}")
        if points:
            base = points[-1][1] + 4
            while any(abs(base - other) < 14 for other in taken):
                base += 2
            taken.append(base)
            canvas.text(points[-1][0] + 10, base, one.name, kind="label")
    return canvas.svg()
