"""docs/glossary.md is in order and explains the words it uses; docs/index.md leads to files."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ROWS = re.findall(r"^\| (.+?) \| (.+) \|$", (DOCS / "glossary.md").read_text("utf-8"), re.M)[1:]
WORDS = [word for word, _ in ROWS]


def test_words_are_in_alphabetical_order() -> None:
    assert sorted(WORDS, key=str.lower) == WORDS
    assert len(set(WORDS)) == len(WORDS) > 50


def test_words_in_italics_have_an_entry() -> None:
    known = {re.sub(r" \(.*\)", "", word).lower() for word in WORDS}
    for word, meaning in ROWS:
        for used in re.findall(r"\*([^*]+)\*", meaning):
            assert {used.lower(), used.lower().removesuffix("s"), used.lower()[:-2]} & known, (
                word,
                used,
            )


def test_links_lead_to_files() -> None:
    for page in ("glossary.md", "index.md"):
        links = re.findall(r"\]\(([^)#]+)\)", (DOCS / page).read_text(encoding="utf-8"))
        assert links
        assert [link for link in links if not (DOCS / link).exists()] == [], page
