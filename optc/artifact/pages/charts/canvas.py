"""A drawing: an ``svg`` element with a title and a description, and the shapes in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from optc.artifact.pages.markup import Element, Node, element

#: Width of drawings with a table beside them; a page makes them as wide as their column.
WIDTH = 720.0
#: Width of drawings that take a whole page.
WIDE = 1080.0
#: Mean width of a character of 12 units, for what must not overlap.
CHARACTER = 6.6


@dataclass
class Canvas:
    """Collects shapes.

    Attributes:
        ident: Unique in a page.
        title: What it shows, for who cannot see it.
        description: What one sees in it.
        height: In units.
        parts: What was drawn.
        width: In units.
    """

    ident: str
    title: str
    description: str
    height: float
    parts: list[Node] = field(default_factory=list)
    width: float = WIDTH

    def add(self, tag: str, *children: Node, **attributes: object) -> None:
        """Draw an element; numbers among the attributes are places."""
        placed = {k: _place(v) if isinstance(v, float) else v for k, v in attributes.items()}
        self.parts.append(element(tag, *children, **placed))

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "start", kind: str | None = None
    ) -> None:
        """A line of text from, around or up to ``x``, its base at ``y``."""
        self.add("text", text, x=float(x), y=float(y), text_anchor=anchor, class_=kind)

    def label(self, x: float, y: float, text: str) -> None:
        """A line of text around ``x``, moved as far as it needs to be within the drawing."""
        self.text(within(x, text, self.width), y, text, anchor="middle", kind="label")

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """A straight line."""
        self.add("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=kind)

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, hint: str = ""
    ) -> None:
        """A rectangle; ``hint`` shows where a pointer rests on it."""
        places = {"x": float(x), "y": float(y), "width": float(width), "height": float(height)}
        self.add("rect", *_title(hint), **places, class_=kind)

    def dot(self, x: float, y: float, radius: float, kind: str, hint: str = "") -> None:
        """A circle."""
        places = {"cx": float(x), "cy": float(y), "r": float(radius)}
        self.add("circle", *_title(hint), **places, class_=kind)

    def path(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """A line through points."""
        steps = (f"{'L' if i else 'M'}{_place(x)} {_place(y)}" for i, (x, y) in enumerate(points))
        self.add("path", d="".join(steps), class_=kind)

    def svg(self) -> Element:
        """The drawing."""
        labels = f"{self.ident}-title", f"{self.ident}-text"
        return element(
            "svg",
            element("title", self.title, id=labels[0]),
            element("desc", self.description, id=labels[1]),
            self.parts,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {_place(self.width)} {_place(self.height)}",
            role="img",
            aria_labelledby=" ".join(labels),
            class_="chart",
        )


def text_width(text: str) -> float:
    """Roughly how wide a line of text is."""
    return CHARACTER * len(text)


def within(x: float, text: str, width: float = WIDTH) -> float:
    """The middle of a line of text around ``x`` that does not leave a drawing so wide."""
    half = text_width(text) / 2
    return min(max(x, half), max(width - half, half))


def cut_to(text: str, width: float) -> str:
    """A text that is no wider: the whole one, its beginning, or nothing where that says nothing."""
    room = int(width / CHARACTER + 1e-9)
    if len(text) <= room:
        return text
    return f"{text[: room - 1]}…" if room >= 6 else ""


def rows_of_labels(places: Sequence[tuple[float, str]]) -> list[int]:
    """A row for each label around its place, in order of their places, so that none overlap."""
    ends: list[float] = []
    rows = []
    for place, text in places:
        half = text_width(text) / 2 + 4
        row = next((i for i, end in enumerate(ends) if end <= place - half), len(ends))
        ends[row : row + 1] = [place + half]
        rows.append(row)
    return rows


def _title(hint: str) -> list[Node]:
    return [element("title", hint)] if hint else []


def _place(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
