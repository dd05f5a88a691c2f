"""Lookahead: the model's answers to rejected drafts become the next drafts.

Jacobi decoding (Santilli et al., 2023) guesses the next k tokens and lets the model correct all of
them at once; what it says behind a wrong guess is the next guess for the place after it. Lookahead
decoding (Fu et al., 2024) keeps the n-grams of these trajectories in a pool, and drafts those that
begin with the last token.

Here both are one chain of ordinary draft rows: first what the pool knows to follow the last token,
then guesses. The logits of rejected rows are computed in any case, so that trajectories cost
nothing beyond the rows of the drafts. Taken from Fu et al.: the pool, its n-grams of guesses and of
the text itself, the latest first, and that guesses are the most likely tokens, also where the
output is sampled. Not taken: their window of several past steps, in which a guess sees the guesses
of the step before along a diagonal, and which costs rows of its own in every step (on CPUs rows are
not free), and several candidates for one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from optc.runtime.requests.request import Request
from optc.runtime.speculative.proposer import DraftOutcome, DraftRequest, Drafts

#: Tokens of an n-gram.
NGRAM = 4


class _Guess(NamedTuple):
    """A token that may come, and those behind which the model said it: each answers the one
    before, in an earlier step."""

    token: int
    trail: tuple[int, ...] = ()


@dataclass
class _Text:
    """One request.

    Attributes:
        seen: How many of its tokens are in the pool.
        pool: What followed a token the last time: up to ``NGRAM - 1`` tokens.
        guesses: What may follow the last known token.
        drafted: The last drafts.
    """

    seen: int = 0
    pool: dict[int, tuple[int, ...]] = field(default_factory=dict)
    guesses: list[_Guess] = field(default_factory=list)
    drafted: list[_Guess] = field(default_factory=list)

    def read(self, request: Request) -> None:
        """Put the tokens that were verified since into the pool."""
        first = max(0, self.seen - NGRAM + 1)
        tokens = request.tokens[first:].tolist()
        for end in range(self.seen - first, len(tokens)):
            self.keep(tokens[max(0, end - NGRAM + 1) : end + 1])
        self.seen = request.num_tokens

    def keep(self, line: Sequence[int]) -> None:
        """Put every end of ``line`` into the pool, under its first token."""
        for start in range(len(line) - 1):
            self.pool[line[start]] = tuple(line[start + 1 :])

    def chain(self, last: int, limit: int) -> list[_Guess]:
        """At most ``limit`` drafts behind the token ``last``."""
        known: list[int] = []
        while len(known) < limit and last in self.pool:
            known += self.pool[last]
            last = known[-1]
        return [*map(_Guess, known), *self.guesses[len(known) :]][:limit]


class LookaheadProposer:
    """Drafts what the model said itself when it was wrong (see the module)."""

    def __init__(self) -> None:
        self._texts: dict[int, _Text] = {}

    def propose(self, wanted: Sequence[DraftRequest]) -> list[Drafts]:
        """A chain for each request."""
        drafts = []
        for request, limit in wanted:
            text = self._texts.setdefault(request.id, _Text())
            text.read(request)
            text.drafted = text.chain(int(request.tokens[-1]), limit)
            text.guesses = []
            drafts.append(Drafts([guess.token for guess in text.drafted]))
        return drafts

    def learn(self, request: Request, checked: DraftOutcome) -> None:
        """Keep what the model said behind the rejected ones of the last drafts."""
        text = self._texts[request.id]
        rejected = text.drafted[checked.accepted : checked.drafted]
        for (token, trail), said in zip(
            rejected, checked.best[checked.accepted + 1 :], strict=True
        ):
            line = (*trail, token, said)[-NGRAM:]
            text.keep(line)
            text.guesses.append(_Guess(said, line[:-1]))

    def forget(self, request: Request) -> None:
        """Drop the request's pool."""
        self._texts.pop(request.id, None)
