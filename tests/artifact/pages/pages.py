"""Reads pages as a browser does and checks them: every element closed, nothing from elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "col"}
#: Characters that no page shows: they would move a cursor, turn text around or break XML.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
#: Attributes whose values are addresses.
ADDRESSES = {"src", "href", "xlink:href", "action", "data", "poster", "srcset", "background"}
#: Elements that run or load something.
ACTIVE = {"script", "iframe", "object", "embed", "link", "base", "img", "image", "use", "form"}


@dataclass
class Seen:
    """An element with what is in it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    within: tuple[str, ...] = ()


@dataclass
class Page(HTMLParser):
    """A page that was read; broken ones are assertion errors."""

    source: str
    elements: list[Seen] = field(default_factory=list)
    open: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        assert self.source.startswith("<!doctype html>\n")
        assert not UNSEEN.search(self.source)
        self.feed(self.source)
        self.close()
        assert not self.open, [one.tag for one in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert len(given) == len(attrs), f"{tag} has an attribute twice"
        assert tag not in ACTIVE
        for name, value in given.items():
            assert not name.startswith("on"), f"{tag} {name}"
            assert name not in ADDRESSES or value.startswith("#"), f"{tag} {name}={value!r}"
        seen = Seen(tag, given, within=tuple(one.tag for one in self.open))
        self.elements.append(seen)
        if tag not in VOID:
            self.open.append(seen)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for one in self.open:
            one.text += data

    def all(self, tag: str, **attributes: str) -> list[Seen]:
        wanted = attributes.items()
        return [e for e in self.elements if e.tag == tag and wanted <= e.attributes.items()]

    def section(self, ident: str) -> Seen:
        (found,) = self.all("section", id=ident)
        return found

    @property
    def text(self) -> str:
        (body,) = self.all("body")
        return body.text


def read_page(source: str) -> Page:
    """A page whose structure is right: unique ids, links that lead somewhere, labelled sections and
    plots, plots of finite places, tables of equal rows, styles that load nothing."""
    page = Page(source)
    ids = [one.attributes["id"] for one in page.elements if "id" in one.attributes]
    assert len(ids) == len(set(ids)), "an id is there twice"
    for link in page.all("a"):
        assert link.attributes["href"].removeprefix("#") in ids
    for one in page.elements:
        labels = one.attributes.get("aria-labelledby", "").split()
        assert set(labels) <= set(ids)
    for style in page.all("style"):
        assert not re.search(r"url\(|@import|expression|https?:", style.text)
    assert len(page.all("h1")) == 1
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy.attributes["content"].startswith("default-src 'none'")
    for chart in page.all("svg"):
        assert chart.attributes["role"] == "img"
        assert {"aria-labelledby", "aria-label"} & set(chart.attributes)
    assert_finite(page)
    return page


def assert_finite(page: Page) -> None:
    """No place of a drawing is too large, or no number."""
    numbers = re.compile(r"-?\d+(\.\d+)?$")
    for one in page.elements:
        if "svg" not in one.within:
            continue
        for name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height"):
            if name in one.attributes:
                value = one.attributes[name]
                assert numbers.match(value), f"{one.tag} {name}={value!r}"
                assert -1000 <= float(value) <= 4000, f"{one.tag} {name}={value!r}"
        if one.tag == "rect":
            assert float(one.attributes["width"]) >= 0
            assert float(one.attributes["height"]) >= 0
