"""The rate of wrong hits of an encoder at a threshold: the gate of a semantic cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.serve.semantic.pairs import Pair
from optc.serve.semantic.words import same_words

Float32 = npt.NDArray[np.float32]
#: Wrong hits of pairs with other answers, at most.
MOST_WRONG = 0.01


@dataclass(frozen=True)
class Measured:
    """Hits among pairs of questions.

    Attributes:
        threshold: Cosine from which on a pair of the same words is a hit.
        same: Pairs with the same answer.
        right: Those of them that are hits.
        other: Pairs with other answers.
        wrong: Those of them that are hits.
        near: Those of them whose cosine is that large, whatever their words.
    """

    threshold: float
    same: int
    right: int
    other: int
    wrong: int
    near: int

    @property
    def wrong_rate(self) -> float:
        """Share of the pairs with other answers that would get a wrong one."""
        return self.wrong / self.other


def unit(vectors: Float32) -> Float32:
    """Vectors [N, D] of length 1; a vector of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.maximum(lengths, np.float32(1e-30))).astype(np.float32)


def similarities(embed: Callable[[Sequence[str]], Float32], pairs: Sequence[Pair]) -> Float32:
    """The cosine [P] of each pair.

    Args:
        embed: Gives vectors f32[texts, D].
        pairs: Of questions.
    """
    first = unit(embed([one.first for one in pairs]))
    second = unit(embed([one.second for one in pairs]))
    return (first * second).sum(-1)


def measured(found: Float32, pairs: Sequence[Pair], threshold: float) -> Measured:
    """Hits at a threshold among pairs of these similarities [P]."""
    hits = [
        bool(value >= threshold) and same_words(one.first, one.second)
        for value, one in zip(found, pairs, strict=True)
    ]
    of_same = [hit for hit, one in zip(hits, pairs, strict=True) if one.same]
    of_other = [hit for hit, one in zip(hits, pairs, strict=True) if not one.same]
    near = sum(
        bool(value >= threshold) for value, one in zip(found, pairs, strict=True) if not one.same
    )
    return Measured(threshold, len(of_same), sum(of_same), len(of_other), sum(of_other), near)


def check_wrong_hits(result: Measured, encoder: str) -> None:
    """Refuse a threshold that lets too many wrong answers pass.

    Raises:
        InputError: The rate is above `MOST_WRONG`.
    """
    if result.wrong_rate > MOST_WRONG:
        raise InputError(
            f"at {result.threshold} the encoder {encoder!r} takes {result.wrong} of"
            f" {result.other} pairs of questions with other answers for the same;"
            f" {MOST_WRONG:.0%} are allowed",
            where="--semantic-cache",
            hint="raise the threshold; python -m benchmarks.serving.semantic_hits shows all",
        )
