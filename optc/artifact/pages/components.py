"""The parts that pages are made of: sections, tables, and figures with a table beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optc.artifact.pages.markup import Element, Node, element

#: Most rows of a table: a damaged report may have any number.
MOST_ROWS = 500


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Attributes:
        ident: Its anchor.
        title: Its heading.
        body: What stands below.
        chart: The plot in it, where it is one that a file of its own can hold.
    """

    ident: str
    title: str
    body: tuple[Node, ...]
    chart: Element | None = None


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and whether it holds numbers or names as they are typed."""

    name: str
    kind: str = "text"


def numbers(*names: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(name, "number") for name in names]


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[Node | None]], caption: str = ""
) -> Element:
    """A table; the first cell of a row is its heading.

    Args:
        columns: Their headings; without any name there is no row of headings.
        rows: Cells: texts or elements; None is an empty one.
        caption: Above it.
    """
    listed = list(rows)
    named = any(column.name for column in columns)
    head = [element("th", c.name, scope="col", class_=c.kind) for c in columns]
    body = [element("tr", _cells(columns, row)) for row in listed[:MOST_ROWS]]
    if (left := len(listed) - MOST_ROWS) > 0:
        body.append(element("tr", element("td", f"… and {left} more", colspan=len(columns))))
    shown = element(
        "table",
        element("caption", caption) if caption else None,
        element("thead", element("tr", head)) if named else None,
        element("tbody", body),
    )
    return element("div", shown, class_="scroll", tabindex="0")


def _cells(columns: Sequence[Column], row: Sequence[Node | None]) -> Iterable[Element]:
    for index, (column, cell) in enumerate(zip(columns, row, strict=True)):
        if index == 0:
            yield element("th", cell, class_=column.kind, scope="row")
        else:  # on a phone the row is a list, in which each cell has its column's name
            yield element("td", cell, class_=column.kind, data_column=column.name or None)


def figure(chart: Element, caption: str, beside: Element) -> Element:
    """A plot with what one sees in it above, and its numbers beside."""
    return element(
        "figure",
        element("figcaption", caption),
        element("div", chart, class_="plot"),
        element("div", beside, class_="beside"),
    )


def paragraph(*parts: Node) -> Element:
    """A paragraph."""
    return element("p", parts)


def code(text: str) -> Element:
    """A name or a command as it is typed."""
    return element("code", text)
