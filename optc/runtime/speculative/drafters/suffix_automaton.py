"""A suffix automaton of a growing text, to find what followed when its end occurred before.

Online construction: Blumer et al., 1985; amortized constant time a token, at most two states a
token. Drafting from the longest earlier match: compare Yang et al., 2023 (inference with
reference) and Hu et al., 2024 (SAM decoding).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_ROOT = 0
_NONE = -1


class Match(NamedTuple):
    """The longest end of the text that occurred before: its length in tokens, and the position
    after an earlier occurrence, the latest that is known."""

    length: int
    end: int


class SuffixAutomaton:
    """All substrings of the tokens that were appended so far."""

    def __init__(self) -> None:
        self._next: list[dict[int, int]] = [{}]  # by state: transitions
        self._link = [_NONE]  # by state: that of its longest suffix that occurs elsewhere too
        self._length = [0]  # by state: of its longest string
        self._end = [0]  # by state: position after an occurrence of its strings
        self._last = _ROOT
        self._size = 0
        self._matched = self._matched_end = 0

    @property
    def match(self) -> Match:
        """That of the text's end."""
        return Match(self._matched, self._matched_end)

    def extend(self, tokens: Iterable[int]) -> None:
        """Add tokens to the text."""
        following, link, length, end = self._next, self._link, self._length, self._end
        last, size = self._last, self._size
        longest, matched_end = _ROOT, 0
        for token in tokens:
            size += 1
            state = len(link)
            following.append({})
            link.append(_ROOT)
            length.append(size)
            end.append(size)
            at = last
            while at != _NONE and token not in following[at]:
                following[at][token] = state
                at = link[at]
            longest = _ROOT if at == _NONE else self._suffix_state(at, token)
            link[state] = longest
            matched_end = end[longest]
            end[longest] = size
            last = state
        if size > self._size:
            self._matched, self._matched_end = length[longest], matched_end
        self._last, self._size = last, size

    def _suffix_state(self, at: int, token: int) -> int:
        """The state of exactly the longest string of ``at`` and ``token``; splits it off if it is
        one with longer strings."""
        target = self._next[at][token]
        if self._length[target] == self._length[at] + 1:
            return target
        split = self._add_state(
            dict(self._next[target]),
            self._link[target],
            self._length[at] + 1,
            self._end[target],
        )
        self._link[target] = split
        while at != _NONE and self._next[at].get(token) == target:
            self._next[at][token] = split
            at = self._link[at]
        return split

    def _add_state(self, transitions: dict[int, int], link: int, length: int, end: int) -> int:
        self._next.append(transitions)
        self._link.append(link)
        self._length.append(length)
        self._end.append(end)
        return len(self._link) - 1
