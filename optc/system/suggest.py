"""Hints for words that are not known."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The known word that is most like ``word``; None where none is."""
    matches = get_close_matches(word, known, n=1)
    return matches[0] if matches else None


def near(word: str, known: Sequence[str]) -> str:
    """A hint for an unknown word: the known ones that it begins, else the nearest, else all."""
    begun = [one for one in known if word and one.startswith(f"{word}-")]
    if begun:
        return f"did you mean {' or '.join(map(repr, begun))}?"
    found = nearest(word, known)
    return f"did you mean {found!r}?" if found else f"one of {', '.join(known)}"
