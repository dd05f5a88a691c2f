"""Texts in the order of their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.errors import RequestError

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ranked:
    """A text's place.

    Attributes:
        index: Its number among those that were given.
        score: What it is ordered by.
    """

    index: int
    score: float


def checked_query(query: object, top: int | None) -> None:
    """Refuse what is no question.

    Raises:
        RequestError: It is no text, or ``top`` is not positive.
    """
    if not isinstance(query, str):
        raise RequestError("is no text", where="query")
    if top is not None and top < 1:
        raise RequestError(f"is {top}", where="top", hint="at least 1")


def pairs_of(query: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """The query before each text.

    Raises:
        RequestError: A text is no text.
    """
    if isinstance(texts, str) or not all(isinstance(one, str) for one in texts):
        raise RequestError("texts are no list of texts", where="texts")
    return [(query, one) for one in texts]


def checked_pairs(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Refuse what are no pairs of texts.

    Raises:
        RequestError: One is none.
    """
    for one in pairs:
        if isinstance(one, str) or len(one) != 2 or not all(isinstance(part, str) for part in one):
            raise RequestError("are no list of pairs of texts", where="pairs")
    return [(first, second) for first, second in pairs]


def best_first(scores: npt.NDArray[Any], top: int | None) -> list[Ranked]:
    """Places by scores [texts], the highest first, equal ones in their order."""
    order = np.argsort(-scores, kind="stable")[:top]
    return [Ranked(int(index), float(scores[index])) for index in order]
