"""`Ruled`: rules for the next token of a request, and what they leave of its logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Float32 = npt.NDArray[np.float32]


class Ruled(NamedTuple):
    """The rules for the next token.

    Attributes:
        only: The one that must follow; None is any.
        never: Those that must not.
        spans: Spans of tokens that must not, each from one and before another.
        outweigh: Tokens from this one on alone may follow where they are together likelier than
            each token before them, of those that the rules above leave; None is no such rule.
    """

    only: int | None = None
    never: Sequence[int] = ()
    spans: Sequence[tuple[int, int]] = ()
    outweigh: int | None = None


class TokenRules(Protocol):
    """Rules of the tokens that may follow others, such as a model's own settings state them."""

    def after(self, tokens: Sequence[int]) -> Ruled:
        """The tokens that may follow the prompt and the output so far."""
        ...


def leave(allowed: Bools, ruled: Ruled) -> None:
    """Take from the tokens [V] that are allowed those that rules forbid, whatever the logits. A
    token that alone may follow, and that is not allowed, is none."""
    allowed[list(ruled.never)] = False
    for first, end in ruled.spans:
        allowed[first:end] = False
    if ruled.only is not None and allowed[ruled.only]:
        allowed[:] = False
        allowed[ruled.only] = True


def weigh(allowed: Bools, ruled: Ruled, logits: Float32) -> None:
    """Take those that `Ruled.outweigh` forbids with the logits [V]."""
    if (first := ruled.outweigh) is None or not allowed[first:].any():
        return
    values = np.where(allowed, logits, -np.inf).astype(np.float64)
    if np.logaddexp.reduce(values[first:]) > values[:first].max(initial=-np.inf):
        allowed[:first] = False
