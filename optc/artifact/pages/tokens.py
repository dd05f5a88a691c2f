"""Texts of tokens, of which a reader sees every character."""

from __future__ import annotations

#: Stands for a blank at an end of a text.
BLANK = "␣"


def token_text(text: str) -> str:
    """A token's text with line ends and the like spelled out, and blanks at its ends shown."""
    shown = repr(text)[1:-1]
    inner = shown.strip(" ")
    if not inner:
        return BLANK * len(shown)
    before = len(shown) - len(shown.lstrip(" "))
    return BLANK * before + inner + BLANK * (len(shown) - before - len(inner))
