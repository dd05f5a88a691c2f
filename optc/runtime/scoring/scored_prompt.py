"""`ScoredPrompt`: what is known so far of the log-probabilities of a prompt's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optc.runtime.executable.executable import Int32
from optc.runtime.params import SamplingParams
from optc.runtime.scoring.prompt_logprobs import PromptLogprobs
from optc.runtime.scoring.token_logprobs import TokenLogprobs


class ScoredToken(NamedTuple):
    """One token of a prompt.

    Attributes:
        logprobs: Of the likeliest token and of the k likeliest ones.
        logprob: Its own.
        rank: 1 and how many are likelier.
    """

    logprobs: TokenLogprobs
    logprob: float
    rank: int


class ScoredPrompt:
    """A prompt whose tokens are scored from one on, in order, as their rows are computed.

    The row of a token gives the log-probability of the next one. A request that is preempted keeps
    what it knows, and needs the logits only of the rows behind that.

    Args:
        tokens: [n] the prompt.
        first: The first token to score; the prompt's first one has no log-probability.
        top: k, the likeliest tokens to report at each position; at most ``vocab_size``.
        vocab_size: V.
    """

    def __init__(self, tokens: Int32, first: int, top: int, vocab_size: int) -> None:
        self.tokens = tokens
        self.first = min(max(1, first), len(tokens))
        self.params = SamplingParams(temperature=0, logprobs=top)
        count, top = len(tokens) - self.first, min(top, vocab_size)
        self._done = 0
        self._logprobs = np.empty(count)
        self._ranks = np.empty(count, np.int32)
        self._best = np.empty(count, np.int32)
        self._top_ids = np.empty((count, top), np.int32)
        self._top_logprobs = np.empty((count, top))

    @property
    def row(self) -> int | None:
        """The first row whose logits are still wanted; None once all are known."""
        following = self.first + self._done
        return None if following == len(self.tokens) else following - 1

    def add(self, row: int, scored: Sequence[ScoredToken]) -> None:
        """Record what rows from ``row`` on gave.

        Raises:
            RuntimeError: They are not the next ones.
        """
        if row != self.row:
            raise RuntimeError(f"row {row} was scored, row {self.row} comes next")
        for at, token in enumerate(scored, self._done):
            self._logprobs[at] = token.logprob
            self._ranks[at] = token.rank
            self._best[at] = token.logprobs.token_id
            for place, (other, logprob) in enumerate(token.logprobs.top):
                self._top_ids[at, place] = other
                self._top_logprobs[at, place] = logprob
        self._done += len(scored)

    def result(self) -> PromptLogprobs | None:
        """All of it; None as long as some are not known."""
        if self.row is not None:
            return None
        return PromptLogprobs(
            self.tokens,
            self.first,
            self._logprobs,
            self._ranks,
            self._best,
            self._top_ids,
            self._top_logprobs,
        )
