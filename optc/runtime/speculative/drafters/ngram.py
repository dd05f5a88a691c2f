"""`NGramProposer`: drafts are what followed when the end of the text occurred before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from optc.runtime.executable.executable import Int32
from optc.runtime.requests.request import Request
from optc.runtime.speculative.drafters.ngram_pool import LONGEST, NGramPool
from optc.runtime.speculative.drafters.suffix_automaton import SuffixAutomaton
from optc.runtime.speculative.proposer import DraftRequest, Drafts

#: A text's own matches of so many tokens go before the pool's.
_SURE = 2
#: Grade of a draft by how many of the tokens before it occurred before in its text: the binary
#: digits of their number; 16 and more are alike. The pool's contexts have grades above.
_MOST_GRADE = 5


class Chain(NamedTuple):
    """Drafts in a row.

    Attributes:
        tokens: [k] drafts.
        grades: [k] how sure each one is, if those before it hold.
    """

    tokens: list[int]
    grades: list[int]


class NGramProposer:
    """Prompt lookup: in the request's own text first, then in the n-grams of all texts.

    Args:
        limit: Most drafts of a request in a step.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pool = NGramPool()
        self._texts: dict[int, NGramText] = {}
        self._chains: dict[int, Chain] = {}

    def propose(self, wanted: Sequence[DraftRequest]) -> list[Drafts]:
        """Look each request's text up."""
        return [Drafts(self._chain(request).tokens[:limit]) for request, limit in wanted]

    def grades(self, request: Request) -> Sequence[int]:
        """Of each draft that could be made for the request: by how much of what it follows occurred
        before, and where."""
        return self._chain(request).grades

    def forget(self, request: Request) -> None:
        """Drop the request's text; its n-grams stay in the pool."""
        self._texts.pop(request.id, None)
        self._chains.pop(request.id, None)

    def _chain(self, request: Request) -> Chain:
        text = self._texts.get(request.id)
        if text is None:
            text = self._texts[request.id] = NGramText(self._pool, request.salt)
        if len(text) < request.num_tokens:
            text.extend(request.tokens[len(text) :])
            self._chains[request.id] = text.chain(self._limit)
        return self._chains[request.id]


class NGramText:
    """One text, and what followed earlier occurrences of its end.

    Args:
        pool: Gets the text's n-grams, and says what followed in others.
        salt: Of the texts that may know of each other.
    """

    def __init__(self, pool: NGramPool, salt: str = "") -> None:
        self._pool = pool
        self._salt = salt
        self._automaton = SuffixAutomaton()
        self._tokens: list[int] = []

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Int32) -> None:
        """Add tokens [n] to the text."""
        start = len(self._tokens)
        self._tokens += tokens.tolist()
        self._automaton.extend(self._tokens[start:])
        self._pool.read(self._salt, self._tokens, start)

    def chain(self, count: int) -> Chain:
        """At most ``count`` drafts: those behind the latest known occurrence of the longest end of
        the text that occurred before, a repetition that has reached the text's end being taken to
        go on. Where that end is a single token, or there is none, those that the pool knows."""
        length, end = self._automaton.match
        tokens: list[int] = []
        grades: list[int] = []
        if length < _SURE:
            tokens, grades = self._others(count, length)
        if length and not tokens:
            period = len(self._tokens) - end
            tokens = [self._tokens[end + i % period] for i in range(count)]
            grades = [min(_MOST_GRADE, (length + i).bit_length()) for i in range(count)]
        return Chain(tokens, grades)

    def _others(self, count: int, length: int) -> tuple[list[int], list[int]]:
        """Drafts by the pool behind ends of more than ``length`` tokens."""
        recent = self._tokens[-LONGEST:]
        tokens: list[int] = []
        grades: list[int] = []
        while len(tokens) < count:
            token, matched = self._pool.follower(self._salt, recent, 0 if tokens else length)
            if not matched:
                break
            tokens.append(token)
            grades.append(_MOST_GRADE + matched)
            recent = [*recent[1 - LONGEST :], token]
        return tokens, grades
