"""Whole documents: HTML that loads nothing, and SVG files of one plot below the other."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from optc.artifact.pages.bench_plots import bench_sections
from optc.artifact.pages.components import MOST_ROWS, Column, Section, numbers, table
from optc.artifact.pages.markup import element
from optc.artifact.pages.page import html_page, svg_file
from tests.artifact.pages.charts.drawing import SVG
from tests.artifact.pages.pages import read_page
from tests.artifact.pages.sample import BENCH


def test_a_page() -> None:
    page = read_page(html_page("a < b", [element("h1", "T")], bench_sections(BENCH), "made by"))
    assert page.all("title")[0].text == "a < b"
    assert page.all("footer")[0].text == "made by"
    assert "prefers-color-scheme: dark" in page.all("style")[0].text
    assert "@media print" in page.all("style")[0].text
    assert page.all("html")[0].attributes["lang"] == "en"


def test_a_drawing_file() -> None:
    text = svg_file([*bench_sections(BENCH), Section("none", "None", ())])
    root = ElementTree.fromstring(text.encode())
    charts = root.findall(f"{SVG}svg")
    assert len(charts) == 2
    tops = [float(chart.attrib["y"]) for chart in charts]
    heights = [float(chart.attrib["height"]) for chart in charts]
    assert tops[1] >= tops[0] + heights[0]
    assert float(root.attrib["height"]) >= tops[1] + heights[1]
    titles = [one.text for one in root.findall(f"{SVG}text")]
    assert titles == ["Roofline", "Where the time of a step goes"]
    style = root.find(f"{SVG}style")
    assert style is not None
    assert "prefers-color-scheme" in (style.text or "")


@pytest.mark.parametrize("count", [0, 3, MOST_ROWS + 2])
def test_tables_are_not_endless(count: int) -> None:
    made = table([Column("a"), *numbers("b")], [(str(i), "1") for i in range(count)], "rows")
    page = read_page(html_page("t", [element("h1", "t"), made], [], ""))
    rows = [one for one in page.all("tr") if "tbody" in one.within]
    assert len(rows) == min(count, MOST_ROWS + 1)
    assert ("… and 2 more" in page.text) is (count > MOST_ROWS)
    assert {one.attributes["scope"] for one in page.all("th")} <= {"row", "col"}
