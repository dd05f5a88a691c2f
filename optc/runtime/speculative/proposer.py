"""`Proposer`, what drafts tokens for one request, and the n-gram one."""

from __future__ import annotations

from typing import Protocol

from optc.runtime.executable import Int32
from optc.runtime.speculative.suffix_automaton import SuffixAutomaton

#: Shorter matches than this many tokens predict next to nothing.
MIN_MATCH = 2


class Proposer(Protocol):
    """Drafts for one request; any drafts are allowed, good ones are fast."""

    def extend(self, tokens: Int32) -> None:
        """Take [n] new tokens of the request, prompt or output; drafts are never among them."""
        ...

    def propose(self, count: int) -> list[int]:
        """At most ``count`` tokens that may come next, in order."""
        ...


class NGramProposer:
    """Prompt lookup: what followed when the end of the text occurred before.

    Args:
        min_match: Fewest tokens of the end that must have occurred.
    """

    def __init__(self, min_match: int = MIN_MATCH) -> None:
        self._min_match = min_match
        self._automaton = SuffixAutomaton()
        self._tokens: list[int] = []

    def extend(self, tokens: Int32) -> None:
        """Add tokens to the text."""
        new = tokens.tolist()
        self._tokens += new
        for token in new:
            self._automaton.append(token)

    def propose(self, count: int) -> list[int]:
        """The tokens after the latest known occurrence; a repetition that has reached the end of
        the text is taken to go on."""
        length, end = self._automaton.match
        if length < self._min_match:
            return []
        period = len(self._tokens) - end
        return [self._tokens[end + i % period] for i in range(count)]
