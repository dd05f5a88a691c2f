"""`Proposer`, what drafts tokens for the requests of an engine, and the n-gram one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from optc.runtime.executable import Int32
from optc.runtime.request import Request
from optc.runtime.speculative.suffix_automaton import SuffixAutomaton

#: Shorter matches than this many tokens predict next to nothing.
MIN_MATCH = 2
#: Matches of 16 tokens and more are alike.
_MOST_GRADE = 5


class Wanted(NamedTuple):
    """A request that ``decodes``, and how many drafts it may be given at most: 1 to its
    ``room``.

    Where its ``num_pending`` is above 1 a grammar forced its last tokens: none of these has been
    computed, so that there are no logits or hidden states behind the last but one."""

    request: Request
    limit: int


class Drafts(NamedTuple):
    """What may follow the known tokens of a request; no tokens where nothing is proposed.

    Attributes:
        tokens: [k] drafts, at most ``Wanted.limit``.
        parents: [k] draft that each one follows, an earlier one, or -1 for the last known token;
            None is a chain. Trees are for engines whose ``spec.tree`` holds. The most likely path
            should come first: it needs no copy if it is accepted, and what does not fit into a
            step is cut off at the end.
    """

    tokens: list[int]
    parents: list[int] | None = None


class Checked(NamedTuple):
    """What a step said of the drafts of a request.

    Attributes:
        drafted: k, the first of the proposed drafts that were in the step.
        path: Indices of the accepted drafts, ascending.
        best: [1 + k] the model's most likely token after the known tokens and after each draft,
            the rejected ones included.
    """

    drafted: int
    path: tuple[int, ...]
    best: Sequence[int]

    @property
    def accepted(self) -> int:
        """How many drafts were accepted."""
        return len(self.path)


class Learner(Protocol):
    """A proposer that learns from what the model says of its drafts."""

    def learn(self, request: Request, checked: Checked) -> None:
        """Take note of a verification of at least one draft; the request's tokens do not hold the
        accepted ones yet."""
        ...


class Proposer(Protocol):
    """Drafts for all requests of an engine at once; any drafts are allowed, good ones are fast.

    A proposer reads what it needs from ``request.tokens``, which grow by what was verified only.
    """

    def propose(self, wanted: Sequence[Wanted]) -> list[Drafts]:
        """Drafts for each of the requests (at least one), in their order, at most ``limit``.

        One call a step; a request that is not among them draws on, drafted by others or not.
        """
        ...

    def forget(self, request: Request) -> None:
        """Drop what is kept of a request that ended; it may never have been asked for."""
        ...


class NGramProposer:
    """Prompt lookup: what followed when the end of the text occurred before.

    Args:
        min_match: Fewest tokens of the end that must have occurred.
    """

    def __init__(self, min_match: int = MIN_MATCH) -> None:
        self._min_match = min_match
        self._texts: dict[int, NGramText] = {}

    def propose(self, wanted: Sequence[Wanted]) -> list[Drafts]:
        """Look each request's own text up."""
        return [
            Drafts(self._text(request).continuation(limit, self._min_match))
            for request, limit in wanted
        ]

    def grade(self, request: Request) -> int:
        """How much of the end of the request's text occurred before: 0 if less than the fewest
        tokens, then the number of its binary digits; the longer, the surer."""
        length = self._text(request).match_length
        return min(_MOST_GRADE, length.bit_length()) if length >= self._min_match else 0

    def forget(self, request: Request) -> None:
        """Drop the request's text."""
        self._texts.pop(request.id, None)

    def _text(self, request: Request) -> NGramText:
        text = self._texts.get(request.id)
        if text is None:
            text = self._texts[request.id] = NGramText()
        if len(text) < request.num_tokens:
            text.extend(request.tokens[len(text) :])
        return text


class NGramText:
    """One text, and what followed earlier occurrences of its end."""

    def __init__(self) -> None:
        self._automaton = SuffixAutomaton()
        self._tokens: list[int] = []

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def match_length(self) -> int:
        """Tokens of the longest end of the text that occurred before."""
        return self._automaton.match.length

    def extend(self, tokens: Int32) -> None:
        """Add tokens [n] to the text."""
        new = tokens.tolist()
        self._tokens += new
        for token in new:
            self._automaton.append(token)

    def continuation(self, count: int, min_match: int) -> list[int]:
        """The ``count`` tokens after the latest known occurrence of the longest end that occurred
        before, none if that is shorter than ``min_match``; a repetition that has reached the end
        of the text is taken to go on."""
        length, end = self._automaton.match
        if length < min_match:
            return []
        period = len(self._tokens) - end
        return [self._tokens[end + i % period] for i in range(count)]
