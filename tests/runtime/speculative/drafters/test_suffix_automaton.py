from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.speculative.drafters.suffix_automaton import SuffixAutomaton


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
        automaton.extend([token])
        length, end = automaton.match
        assert length == longest_match(text[:size])
        if length:
            assert end < size
            assert text[end - length : end] == text[size - length : size]


def test_a_later_occurrence_is_preferred() -> None:
    automaton = SuffixAutomaton()
    automaton.extend([1, 2, 7, 1, 2, 8, 1, 2])
    assert automaton.match == (2, 5)


@given(st.lists(st.lists(st.integers(0, 2), max_size=20), max_size=5))
def test_a_text_may_come_in_pieces(pieces: list[list[int]]) -> None:
    whole, parts = SuffixAutomaton(), SuffixAutomaton()
    whole.extend([token for piece in pieces for token in piece])
    for piece in pieces:
        parts.extend(piece)
    assert parts.match == whole.match
