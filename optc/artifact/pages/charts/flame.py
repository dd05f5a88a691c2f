"""A flame graph of the time of a step: bars below bars, each as wide as its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optc.artifact.pages.charts.canvas import WIDE, Canvas, cut_to
from optc.artifact.pages.charts.scale import Scale, linear
from optc.artifact.pages.markup import Element

_ROW = 30


@dataclass(frozen=True)
class Span:
    """A part of the time.

    Attributes:
        label: Within it, where there is room, and where a pointer rests on it.
        value: Its time; not negative.
        needed: The share of it that a line at its foot marks, from its beginning.
        hint: More to say where a pointer rests on it.
        parts: What it is made of, in order; what is missing of its time is left blank.
    """

    label: str
    value: float
    needed: float = 0.0
    hint: str = ""
    parts: tuple[Span, ...] = ()


def flame(ident: str, title: str, text: str, whole: Span) -> Element:
    """The whole above its parts, above theirs."""
    x = linear(0, max(whole.value, _sum(whole.parts)) or 1, 0, WIDE)
    canvas = Canvas(ident, title, text, _ROW * _depth(whole) + 2, width=WIDE)
    _draw(canvas, x, whole, 0.0, 0)
    return canvas.svg()


def _draw(canvas: Canvas, x: Scale, span: Span, start: float, row: int) -> None:
    left, right, y = x(start), x(start + span.value), _ROW * row + 1.0
    width, height = max(right - left - 1, 0.5), _ROW - 3
    hint = ": ".join(filter(None, (span.label, span.hint)))
    canvas.rect(left, y, width, height, "soft", hint)
    if span.needed > 0:
        canvas.rect(left, y + height - 5, width * min(span.needed, 1.0), 5, "fill", hint)
    if shown := cut_to(span.label, width - 12):
        canvas.text(left + 6, y + 16, shown)
    for part in span.parts:
        _draw(canvas, x, part, start, row + 1)
        start += part.value


def _sum(parts: Sequence[Span]) -> float:
    return sum(part.value for part in parts)


def _depth(span: Span) -> int:
    return 1 + max(map(_depth, span.parts), default=0)
