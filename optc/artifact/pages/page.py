"""Whole documents: an HTML page of sections, and an SVG file of plots."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from optc.artifact.pages.components import Section
from optc.artifact.pages.markup import Element, Node, Style, element

#: Nothing is loaded and nothing runs, whatever text has come into the page.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
#: Above and below each plot of an SVG file, and at its sides.
_MARGIN, _TITLE = 24, 26


@cache
def _style(*names: str) -> Style:
    folder = files("optc.artifact.pages")
    return Style("".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names))


def html_page(title: str, head: Sequence[Node], sections: Sequence[Section], made_by: str) -> str:
    """A page that needs no other file.

    Args:
        title: Of the window.
        head: Above the list of sections.
        sections: In order.
        made_by: The last line.
    """
    links = [element("li", element("a", one.title, href=f"#{one.ident}")) for one in sections]
    page = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            element("meta", name="referrer", content="no-referrer"),
            element("title", title),
            _style("style.css", "page.css"),
        ),
        element(
            "body",
            element("header", head),
            element("nav", element("ul", links), aria_label="Sections"),
            element("main", map(_section, sections)),
            element("footer", made_by),
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page.render()}\n"


def _section(section: Section) -> Element:
    heading = f"{section.ident}-heading"
    return element(
        "section",
        element("h2", section.title, id=heading),
        section.body,
        id=section.ident,
        aria_labelledby=heading,
    )


def svg_file(sections: Sequence[Section]) -> str:
    """The plots of sections below each other, as an SVG file; at least one has a plot."""
    drawn = [(one.title, one.chart) for one in sections if one.chart is not None]
    widest = max(_box(chart)[0] for _, chart in drawn)
    parts: list[Node] = []
    top = float(_MARGIN)
    for title, chart in drawn:
        parts.append(element("text", title, x=_MARGIN, y=f"{top + 14:g}", class_="title"))
        top += _TITLE
        width, height = _box(chart)
        placed = {"x": _MARGIN, "y": top, "width": width, "height": height}
        given = tuple((name, f"{value:g}") for name, value in placed.items())
        parts.append(Element(chart.tag, chart.attributes + given, chart.children))
        top += height + _MARGIN
    size = {"width": f"{widest + 2 * _MARGIN:g}", "height": f"{top:g}"}
    whole = element(
        "svg",
        _style("style.css"),
        element("rect", **size, style="fill: var(--page)"),
        parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {size['width']} {size['height']}",
        class_="file",
        **size,
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{whole.render()}\n'


def _box(chart: Element) -> tuple[float, float]:
    """Width and height of a drawing."""
    width, height = dict(chart.attributes)["viewBox"].split()[2:]
    return float(width), float(height)
