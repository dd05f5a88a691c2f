"""Beam search over candidates: which beams go on, which hypotheses ended, and when to stop.

Log-probabilities and token ids only. The rules are those of transformers' ``num_beams``: the best
``(1 + number of end tokens) * width`` candidates of all beams are looked at, best first; the first
``width`` of them may end as hypotheses, the best ``width`` others go on. A hypothesis of n output
tokens, its end token included, has the score ``log-probability / n ** length_penalty``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from optc.runtime.executable.executable import Float32

Bools = npt.NDArray[np.bool_]
#: Stop when ``width`` hypotheses ended (True), when no beam can be better than the worst of them at
#: its present length (False), or at any length it can reach ("never").
EarlyStopping = bool | Literal["never"]


class Candidate(NamedTuple):
    """One token that may continue a beam, with its log-probability there."""

    logprob: float
    token: int


class Branch(NamedTuple):
    """Beam ``beam`` goes on with ``token``; ``logprob`` is that of the whole output."""

    beam: int
    token: int
    logprob: float


class Hypothesis(NamedTuple):
    """An output that ended.

    Attributes:
        score: Its log-probability with the length penalty.
        logprob: Its log-probability.
        tokens: Its tokens, an end token included.
        ended: By an end token, not by its length.
    """

    score: float
    logprob: float
    tokens: tuple[int, ...]
    ended: bool


class BeamSearch:
    """One search.

    Args:
        width: Beams and hypotheses.
        ends: End tokens.
        max_tokens: Longest output.
        length_penalty: Exponent of the length; above 0 favours long outputs.
        early_stopping: When to stop.

    Attributes:
        logprobs: Of the beams that go on.
        hypotheses: Best first, at most ``width``.
        done: Nothing is left to be computed.
    """

    def __init__(
        self,
        width: int,
        ends: frozenset[int],
        max_tokens: int,
        length_penalty: float,
        early_stopping: EarlyStopping,
    ) -> None:
        self.width = width
        self.logprobs = [0.0]
        self.hypotheses: list[Hypothesis] = []
        self.done = False
        self._ends = ends
        self._max_tokens = max_tokens
        self._length_penalty = length_penalty
        self._early_stopping = early_stopping

    @property
    def wanted(self) -> int:
        """Candidates that are needed of each beam."""
        return max(2, 1 + len(self._ends)) * self.width

    def advance(
        self, candidates: Sequence[Sequence[Candidate]], outputs: Sequence[tuple[int, ...]]
    ) -> list[Branch]:
        """Go on by one token.

        Args:
            candidates: By beam, its `wanted` likeliest tokens.
            outputs: By beam, its tokens so far, all of one length.

        Returns:
            The beams from now on, best first. When the search is ``done`` they are what it
            would have gone on with.
        """
        best = sorted(
            (-(self.logprobs[beam] + each.logprob), beam, each.token)
            for beam, mine in enumerate(candidates)
            for each in mine
        )[: self.wanted]
        length = len(outputs[0]) + 1
        last = length == self._max_tokens
        full = len(self.hypotheses) == self.width
        branches: list[Branch] = []
        for place, (negative, beam, token) in enumerate(best):
            if last or token in self._ends:
                if place < self.width and not (full and self._early_stopping is True):
                    self._end(-negative, (*outputs[beam], token), token in self._ends)
            elif len(branches) < self.width:
                branches.append(Branch(beam, token, -negative))
        self.logprobs = [branch.logprob for branch in branches]
        self.done = last or not branches or not self._can_improve(length)
        return branches

    def _end(self, logprob: float, tokens: tuple[int, ...], ended: bool) -> None:
        score = logprob / len(tokens) ** self._length_penalty
        self.hypotheses.append(Hypothesis(score, logprob, tokens, ended))
        self.hypotheses.sort(key=lambda each: -each.score)  # stable: the first one of equals stays
        del self.hypotheses[self.width :]

    def _can_improve(self, length: int) -> bool:
        """Some beam may become better than the worst hypothesis."""
        if len(self.hypotheses) < self.width:
            return True
        if self._early_stopping is True:
            return False
        if self._early_stopping == "never" and self._length_penalty > 0:
            length = self._max_tokens
        best_possible = self.logprobs[0] / length**self._length_penalty
        return best_possible > self.hypotheses[-1].score


def likeliest(logits: Float32, count: int, allowed: Bools | None = None) -> list[Candidate]:
    """The ``count`` likeliest tokens of a row [V] among those allowed [V], the lowest id first of
    equals, with their log-probabilities among all tokens; empty if the logits hold a NaN."""
    values = logits.astype(np.float64)
    largest = values.max()
    if np.isnan(largest):
        return []
    total = largest + np.log(np.exp(values - largest).sum())
    if allowed is not None:
        values[~allowed] = -np.inf
        count = min(count, int(allowed.sum()))
    count = min(count, len(values))
    if not count:
        return []
    least = np.partition(values, -count)[-count] if count < len(values) else -np.inf
    ids = np.flatnonzero(values >= least)
    ids = ids[np.argsort(-values[ids], kind="stable")][:count]
    return [Candidate(float(values[token] - total), int(token)) for token in ids]
