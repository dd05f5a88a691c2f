"""HTML and SVG as values: what is text stays text.

Names, prompts and reports come from others. A text becomes markup here only, escaped; characters
that XML forbids, that move a cursor or that turn text around are spelled out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

#: Elements without contents and end tag.
_VOID = frozenset({"meta", "br", "col"})
#: Control characters, surrogates and noncharacters, and marks that change a text's direction.
_UNSEEN = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff\\ufffe\\uffff]"
)
#: Most characters of one text: a damaged report may have any number.
LONGEST_TEXT = 10_000
_NAME = re.compile("[a-zA-Z][a-zA-Z0-9-]*")


@dataclass(frozen=True)
class Element:
    """An element.

    Attributes:
        tag: Its name.
        attributes: Names and values, in order.
        children: Texts and elements.
    """

    tag: str
    attributes: tuple[tuple[str, str], ...] = ()
    children: tuple[Node, ...] = ()

    def render(self) -> str:
        """As HTML, and as XML where no element is one without an end tag."""
        given = "".join(f' {name}="{_escaped(value)}"' for name, value in self.attributes)
        opened = f"<{self.tag}{given}>"
        if self.tag in _VOID:
            return opened
        return f"{opened}{''.join(map(_rendered, self.children))}</{self.tag}>"


@dataclass(frozen=True)
class Style:
    """A style sheet of ours.

    Attributes:
        text: CSS, which means the same in HTML, where nothing of it is escaped, and in XML.
    """

    text: str

    def render(self) -> str:
        """The element ``style``."""
        if set("<&") & set(self.text):
            raise ValueError("a style sheet with < or & is not the same in HTML and XML")
        return f"<style>{self.text}</style>"


Node = Element | Style | str


def element(tag: str, *children: Node | Iterable[Node] | None, **attributes: object) -> Element:
    """An element.

    Args:
        tag: Its name.
        children: Texts, elements, iterables of both; None is nothing.
        attributes: Values; None and False leave one out, True gives it no value. An underscore at
            the end of a name is dropped (``class_``), others become dashes (``stroke_width``).
    """
    if not _NAME.fullmatch(tag):
        raise ValueError(f"{tag!r} is no element")
    given = (
        (name.rstrip("_").replace("_", "-"), "" if value is True else str(value))
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    return Element(tag, tuple(given), tuple(_flat(children)))


def _flat(children: Iterable[Node | Iterable[Node] | None]) -> Iterable[Node]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, str | Element | Style):
            yield child
        else:
            yield from child


def _rendered(node: Node) -> str:
    return _escaped(node) if isinstance(node, str) else node.render()


def _escaped(text: str) -> str:
    shown = (
        text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({len(text)} characters)"
    )
    return escape(_UNSEEN.sub(lambda found: ascii(found[0])[1:-1], shown))
