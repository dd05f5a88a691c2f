"""Reads drawings back as XML."""

from __future__ import annotations

from xml.etree import ElementTree

from optc.artifact.pages.markup import Element

SVG = "{http://www.w3.org/2000/svg}"


def read_drawing(chart: Element) -> ElementTree.Element:
    """A drawing that has a title and a description, and lies within its box."""
    root = ElementTree.fromstring(chart.render())
    assert root.tag == f"{SVG}svg"
    title, description = root[0], root[1]
    assert (title.tag, description.tag) == (f"{SVG}title", f"{SVG}desc")
    assert title.text
    assert description.text
    assert root.attrib["aria-labelledby"].split() == [title.attrib["id"], description.attrib["id"]]
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for one in root.iter():
        for names, end in ((("x", "x1", "x2", "cx"), width), (("y", "y1", "y2", "cy"), height)):
            assert all(-1 <= float(one.attrib[n]) <= end + 1 for n in names if n in one.attrib)
    return root


def shapes(root: ElementTree.Element, tag: str, kind: str) -> list[dict[str, float]]:
    """The places of shapes of a kind, in order."""
    return [
        {name: float(value) for name, value in one.attrib.items() if name != "class"}
        for one in root.iter(f"{SVG}{tag}")
        if one.get("class") == kind
    ]


def texts(root: ElementTree.Element, kind: str | None = None) -> list[str]:
    """The texts of a kind, in order."""
    found = [one for one in root.iter(f"{SVG}text") if kind is None or one.get("class") == kind]
    return [one.text or "" for one in found]


def hints(root: ElementTree.Element) -> list[str]:
    """What is shown where a pointer rests."""
    return [one.text or "" for parent in root for one in parent.findall(f"{SVG}title")]
