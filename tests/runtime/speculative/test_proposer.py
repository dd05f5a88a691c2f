from __future__ import annotations

import numpy as np

from optc.runtime.speculative.proposer import MIN_MATCH, NGramText


def text_of(tokens: list[int]) -> NGramText:
    made = NGramText()
    made.extend(np.array(tokens, np.int32))
    return made


def propose(text: NGramText, count: int) -> list[int]:
    return text.continuation(count, MIN_MATCH)


def test_what_followed_before_is_proposed() -> None:
    text = text_of([1, 2, 3, 4, 9, 1, 2])
    assert propose(text, 3) == [3, 4, 9]
    text.extend(np.array([3], np.int32))
    assert propose(text, 2) == [4, 9]
    assert len(text) == 8


def test_a_repetition_goes_on_beyond_the_text() -> None:
    assert propose(text_of([5, 6, 5, 6, 5]), 5) == [6, 5, 6, 5, 6]


def test_nothing_is_proposed_without_a_match_of_two_tokens() -> None:
    assert propose(text_of([]), 4) == []
    assert propose(text_of([1, 2, 3]), 4) == []
    assert propose(text_of([1, 2, 1]), 4) == []
