"""Hints for words that are not known."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches


def near(word: str, known: Sequence[str]) -> str:
    """A hint for an unknown word: the nearest known one, else all of them."""
    matches = get_close_matches(word, known, n=1)
    return f"did you mean {matches[0]!r}?" if matches else f"one of {', '.join(known)}"
