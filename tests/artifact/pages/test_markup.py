"""Text stays text, in HTML and in XML."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.artifact.pages.markup import LONGEST_TEXT, Style, element
from tests.artifact.pages.pages import UNSEEN


def test_attributes_and_children() -> None:
    made = element(
        "p", "a < b", None, [element("br"), "c"], class_="x", stroke_width=2, hidden=True, id=None
    )
    assert made.render() == '<p class="x" stroke-width="2" hidden="">a &lt; b<br>c</p>'


@given(st.text(st.characters(), max_size=60))
def test_any_text_is_read_back_as_it_is_shown(text: str) -> None:
    markup = element("p", text, title=text).render()
    assert not UNSEEN.search(markup)
    root = ElementTree.fromstring(markup)
    pieces: list[str] = []
    parser = HTMLParser()
    parser.handle_data = pieces.append  # type: ignore[method-assign]
    parser.feed(markup)
    parser.close()
    shown = UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)
    assert "".join(pieces) == shown
    assert (root.text or "") == shown.replace("\r\n", "\n")
    assert len(root) == 0


def test_long_texts_are_cut() -> None:
    shown = element("p", "x" * (LONGEST_TEXT + 5)).render()
    assert shown == f"<p>{'x' * LONGEST_TEXT}… ({LONGEST_TEXT + 5} characters)</p>"


def test_names_of_elements_are_ours() -> None:
    with pytest.raises(ValueError, match="is no element"):
        element("p><script")


def test_style_sheets_mean_the_same_in_both_languages() -> None:
    assert Style("a { top: 0 }").render() == "<style>a { top: 0 }</style>"
    with pytest.raises(ValueError, match="not the same"):
        Style("</style>").render()
