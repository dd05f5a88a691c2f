"""Reads drawings back as XML."""

from __future__ import annotations

from xml.etree import ElementTree

from optc.artifact.pages.charts.canvas import text_width
from optc.artifact.pages.markup import Element

SVG = "{http://www.w3.org/2000/svg}"


def read_drawing(chart: Element) -> ElementTree.Element:
    """A drawing that has a title and a description, and lies within its box, texts too."""
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
    for one in root.iter(f"{SVG}text"):
        left, right = ends(one)
        assert -1 <= left <= right <= width + 1, one.text
    return root


def ends(one: ElementTree.Element) -> tuple[float, float]:
    """The places where a line of text begins and ends."""
    wide, x = text_width(one.text or ""), float(one.attrib["x"])
    left = x - {"start": 0, "middle": wide / 2, "end": wide}[one.attrib["text-anchor"]]
    return left, left + wide


def places(root: ElementTree.Element, kind: str) -> dict[str, tuple[float, float]]:
    """The left end and the base of each text of a kind."""
    return {
        one.text or "": (ends(one)[0], float(one.attrib["y"]))
        for one in root.iter(f"{SVG}text")
        if one.get("class") == kind
    }


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
