from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.speculative.suffix_automaton import SuffixAutomaton


def longest_match(text: list[int]) -> int:
    """Length of the longest end of the text that occurs before, by trying all."""
    for length in range(len(text) - 1, 0, -1):
        end = text[len(text) - length :]
        if any(text[i : i + length] == end for i in range(len(text) - length)):
            return length
    return 0


@given(st.lists(st.integers(0, 2), max_size=60))
def test_the_match_is_the_longest_and_really_occurs_before(text: list[int]) -> None:
    automaton = SuffixAutomaton()
    for size, token in enumerate(text, 1):
        automaton.append(token)
        length, end = automaton.match
        assert length == longest_match(text[:size])
        if length:
            assert end < size
            assert text[end - length : end] == text[size - length : size]


def test_a_later_occurrence_is_preferred() -> None:
    automaton = SuffixAutomaton()
    for token in [1, 2, 7, 1, 2, 8, 1, 2]:
        automaton.append(token)
    assert automaton.match == (2, 5)
