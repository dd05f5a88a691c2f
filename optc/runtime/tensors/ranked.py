"""Texts in the order of their scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.errors import RequestError


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


def best_first(scores: npt.NDArray[Any], top: int | None) -> list[Ranked]:
    """Places by scores [texts], the highest first, equal ones in their order."""
    order = np.argsort(-scores, kind="stable")[:top]
    return [Ranked(int(index), float(scores[index])) for index in order]
