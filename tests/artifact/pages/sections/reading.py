"""Reads a section back: its tables, drawings and texts."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from optc.artifact.pages.components import Section
from optc.artifact.pages.markup import element


def read_section(section: Section | None) -> ElementTree.Element:
    assert section is not None
    return ElementTree.fromstring(element("section", section.body).render())


def text_of(one: ElementTree.Element) -> str:
    return "".join(one.itertext())


def listed(root: ElementTree.Element, tag: str, **attributes: str) -> list[str]:
    """The texts of all elements of a kind, in order."""
    wanted = {name.rstrip("_"): value for name, value in attributes.items()}.items()
    return [text_of(one) for one in root.iter(tag) if wanted <= one.attrib.items()]


def tables(root: ElementTree.Element) -> list[list[list[str]]]:
    """Cells of the bodies of all tables, row by row."""
    return [
        [[text_of(cell) for cell in row] for body in table.iter("tbody") for row in body]
        for table in root.iter("table")
    ]


def first_row(root: ElementTree.Element) -> dict[str, Any]:
    """The first row of the first table by the names of its columns."""
    names = [text_of(cell) for cell in next(root.iter("thead"))[0]]
    return dict(zip(names, tables(root)[0][0], strict=True))
