from __future__ import annotations

import numpy as np

from optc.runtime.speculative.proposer import NGramProposer


def proposer(tokens: list[int]) -> NGramProposer:
    made = NGramProposer()
    made.extend(np.array(tokens, np.int32))
    return made


def test_what_followed_before_is_proposed() -> None:
    text = proposer([1, 2, 3, 4, 9, 1, 2])
    assert text.propose(3) == [3, 4, 9]
    text.extend(np.array([3], np.int32))
    assert text.propose(2) == [4, 9]


def test_a_repetition_goes_on_beyond_the_text() -> None:
    assert proposer([5, 6, 5, 6, 5]).propose(5) == [6, 5, 6, 5, 6]


def test_nothing_is_proposed_without_a_match_of_two_tokens() -> None:
    assert proposer([]).propose(4) == []
    assert proposer([1, 2, 3]).propose(4) == []
    assert proposer([1, 2, 1]).propose(4) == []
