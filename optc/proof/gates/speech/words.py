"""Word error rates."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: What stands between words: all but letters, digits and apostrophes.
_BETWEEN = re.compile(r"[^\w']+")


def words(text: str) -> list[str]:
    """The words of a text, in lower case, without punctuation."""
    return [word for word in _BETWEEN.split(text.lower()) if word]


def errors(found: Sequence[str], wanted: Sequence[str]) -> int:
    """Words to insert, to leave out or to replace, at least, to make one text the other
    (Levenshtein, 1966)."""
    row = list(range(len(wanted) + 1))
    for i, word in enumerate(found, 1):
        before, row = row, [i]
        for j, other in enumerate(wanted, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (word != other)))
    return row[-1]


def error_rate(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Errors of all texts over the words that were wanted; None where none were.

    Args:
        pairs: What was found, and what was wanted.
    """
    split = [(words(found), words(wanted)) for found, wanted in pairs]
    count = sum(len(wanted) for _, wanted in split)
    return sum(errors(*pair) for pair in split) / count if count else None
