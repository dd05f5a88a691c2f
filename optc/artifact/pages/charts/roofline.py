"""The roofline (Williams et al., 2009): what a machine can do at best at each arithmetic intensity,
and what was reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optc.artifact.pages.charts.axes import tick_text, x_axis, y_axis
from optc.artifact.pages.charts.canvas import WIDTH, Canvas, text_width
from optc.artifact.pages.charts.scale import Scale, logarithmic
from optc.artifact.pages.markup import Element


@dataclass(frozen=True)
class Work:
    """The work of a step or a kernel.

    Attributes:
        label: What it is.
        intensity: Operations for each byte; positive.
        rate: Billions of operations in a second; positive.
        hint: Where a pointer rests on it.
        whole: A step, which is labelled; else one of its kernels.
    """

    label: str
    intensity: float
    rate: float
    hint: str
    whole: bool = True


def roofline(
    ident: str,
    title: str,
    text: str,
    read: float,
    peaks: Mapping[str, float],
    work: Sequence[Work],
) -> Element:
    """Roofs and points.

    Args:
        ident: Unique in a page.
        title: What it shows.
        text: What one sees in it.
        read: Billions of bytes in a second.
        peaks: Billions of operations in a second by type; at least one.
        work: At least one.
    """
    ridge = max(peaks.values()) / read
    intensities = [one.intensity for one in work]
    x = logarithmic(min(*intensities, 0.5) / 1.5, max(*intensities, 3 * ridge), 64, WIDTH - 16)
    rates = [one.rate for one in work]
    low = min(*rates, *peaks.values()) / 3
    y = logarithmic(low, 1.6 * max(*rates, *peaks.values()), 320, 34)
    canvas = Canvas(ident, title, text, 364)
    y_axis(canvas, y, x, "Gop/s")
    _roofs(canvas, x, y, read, peaks)
    for one in sorted(work, key=lambda one: one.whole):
        kind, radius = ("point", 6) if one.whole else ("faint", 3.5)
        canvas.dot(x(one.intensity), y(one.rate), radius, kind, one.hint)
    _labels(canvas, x, y, [one for one in work if one.whole])
    x_axis(canvas, x, 320, "operations for each byte read", tick_text)
    return canvas.svg()


def _roofs(canvas: Canvas, x: Scale, y: Scale, read: float, peaks: Mapping[str, float]) -> None:
    highest = max(peaks.values())
    for name, peak in sorted(peaks.items(), key=lambda item: item[1]):
        kind = "roof" if peak == highest else "lower"
        ridge = min(max(peak / read, x.low), x.high)
        canvas.path([(x(ridge), y(peak)), (x.end, y(peak))], kind)
        label = f"{name}, {tick_text(round(peak))} Gop/s"
        canvas.text(x.end, y(peak) - 6, label, anchor="end", kind="tick")
    start = max(x.low, y.low / read)
    canvas.path([(x(start), y(start * read)), (x(highest / read), y(highest))], "roof")
    middle = (start * highest / read) ** 0.5
    label = f"read, {tick_text(round(read, 1))} GB/s"
    canvas.text(x(middle) - 12, y(middle * read) - 6, label, anchor="end", kind="tick")


def _labels(canvas: Canvas, x: Scale, y: Scale, work: Sequence[Work]) -> None:
    """Each beside, above or below its point, where it covers no point and no other label."""
    taken = [(x(one.intensity), y(one.rate), 14.0, 14.0) for one in work]
    for one in sorted(work, key=lambda one: -one.rate):
        width, left, top = text_width(one.label), x(one.intensity), y(one.rate)
        beside = 12 + width / 2
        places = [
            *((left + beside, top + shift) for shift in (0, 15, -15)),
            *((left - beside, top + shift) for shift in (0, 15, -15)),
            *((left, top + shift) for shift in (20, -20, 36, -36, 52, -52)),
        ]
        inside = [place for place in places if x.start <= place[0] - width / 2 <= x.end - width]
        boxes = [(across, up, width, 14.0) for across, up in inside or places[-2:]]
        free = next(
            (box for box in boxes if not any(_meet(box, other) for other in taken)), boxes[-1]
        )
        taken.append(free)
        canvas.text(free[0], free[1] + 4, one.label, anchor="middle", kind="label")


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """True if two boxes, by middle and size, overlap."""
    apart_x = abs(one[0] - other[0]) >= (one[2] + other[2]) / 2
    return not apart_x and abs(one[1] - other[1]) < (one[3] + other[3]) / 2
