from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.speculative.drafters.ngram import NGramProposer, NGramText
from optc.runtime.speculative.drafters.ngram_pool import LONGEST, NGramPool
from optc.runtime.speculative.proposer import DraftRequest
from tests.runtime.speculative.test_speculator import request as new_request


def text_of(tokens: list[int], pool: NGramPool | None = None, salt: str = "") -> NGramText:
    made = NGramText(NGramPool() if pool is None else pool, salt)
    made.extend(np.array(tokens, np.int32))
    return made


def propose(text: NGramText, count: int) -> list[int]:
    return text.chain(count).tokens


def test_what_followed_before_is_proposed() -> None:
    text = text_of([1, 2, 3, 4, 9, 1, 2])
    assert propose(text, 3) == [3, 4, 9]
    text.extend(np.array([3], np.int32))
    assert propose(text, 2) == [4, 9]
    assert len(text) == 8


def test_a_repetition_goes_on_beyond_the_text() -> None:
    assert propose(text_of([5, 6, 5, 6, 5]), 5) == [6, 5, 6, 5, 6]


def test_one_token_is_a_match_and_none_is_not() -> None:
    assert propose(text_of([]), 4) == []
    assert propose(text_of([1, 2, 3]), 4) == []
    assert propose(text_of([1, 2, 1]), 4) == [2, 1, 2, 1]


def test_the_longer_the_match_the_higher_the_grade() -> None:
    assert text_of([1, 2, 1]).chain(4).grades == [1, 2, 2, 3]
    assert text_of([1, 2, 3, 9, 1, 2, 3]).chain(6).grades == [2, 3, 3, 3, 3, 4]
    assert text_of([*range(40), *range(39)]).chain(2).grades == [5, 5]


@pytest.mark.parametrize(
    ("text", "salt", "drafts", "why"),
    [
        ([9, 2, 3], "", [4, 5, 6, 1], "nothing of its own"),
        ([3, 7, 3], "", [7, 3, 7, 3], "its own is as long a match"),
        ([2, 3, 8, 2, 3], "", [8, 2, 3, 8], "its own is long enough"),
        ([3, 8, 2, 3], "", [4, 5, 6, 1], "the pool's match is longer"),
        ([2, 3, 8, 1, 2, 3], "", [8, 1, 2, 3], "two tokens of its own are enough"),
        ([9, 2, 3], "another", [], "salts share nothing"),
    ],
)
def test_other_texts_are_asked_where_its_own_says_little(
    text: list[int], salt: str, drafts: list[int], why: str
) -> None:
    pool = NGramPool()
    text_of([1, 2, 3, 4, 5, 6, 1], pool)
    assert propose(text_of(text, pool, salt), 4) == drafts, why


def test_drafts_from_other_texts_have_grades_of_their_own() -> None:
    pool = NGramPool()
    text_of([1, 2, 3, 4, 5, 6], pool)
    assert text_of([9, 2, 3], pool).chain(2) == ([4, 5], [7, 8])  # behind 2 3, then 2 3 4


def test_the_pool_ends_where_nothing_is_known() -> None:
    pool = NGramPool()
    text_of([1, 2, 3], pool)
    assert propose(text_of([7, 1], pool), 9) == [2, 3]


@given(st.lists(st.lists(st.integers(0, 3), max_size=40), max_size=6))
def test_the_pool_holds_what_followed_last(texts: list[list[int]]) -> None:
    pool = NGramPool()
    last: dict[tuple[int, ...], int] = {}
    for tokens in texts:
        pool.read("", tokens, 0)
        for end in range(1, len(tokens)):
            for length in range(1, min(LONGEST, end) + 1):
                last[tuple(tokens[end - length : end])] = tokens[end]
    for tokens in texts:
        known = [n for n in range(1, LONGEST + 1) if tuple(tokens[-n:]) in last and tokens[n - 1 :]]
        token, length = pool.follower("", tokens, 0)
        assert length == max(known, default=0)
        assert not length or token == last[tuple(tokens[-length:])]


@given(st.lists(st.integers(0, 9), max_size=300), st.integers(1, 20))
def test_the_pool_is_bounded_and_keeps_the_latest(tokens: list[int], most: int) -> None:
    pool = NGramPool(most)
    for end in range(1, len(tokens)):
        pool.read("", tokens[: end + 1], end)
        assert len(pool) <= 2 * (most + LONGEST)
        assert pool.follower("", tokens[:end], 0)[0] == tokens[end]


def test_a_text_read_in_parts_is_read_as_a_whole() -> None:
    tokens = np.random.default_rng(0).integers(0, 4, 200).astype(np.int32)
    whole, parts = NGramPool(), NGramPool()
    text_of(tokens.tolist(), whole)
    text = NGramText(parts)
    for part in np.split(tokens, [3, 50, 51, 120]):
        text.extend(part)
    for end in range(1, 200):
        context = tokens[:end].tolist()
        assert whole.follower("", context, 0) == parts.follower("", context, 0)


def test_a_proposer_knows_each_requests_text_and_what_followed_in_others() -> None:
    proposer = NGramProposer(4)
    first, second, third = (new_request(number) for number in range(3))
    for token in (1, 2):
        first.append(token)  # 0 1 2 3 1 2
    for token in (9, 7):
        second.append(token)  # 0 1 2 3 9 7
    third.append(9)  # 0 1 2 3 9
    wanted = [DraftRequest(first, 4), DraftRequest(second, 4), DraftRequest(third, 2)]
    assert [drafts.tokens for drafts in proposer.propose(wanted)] == [[3, 1, 2, 3], [], [7]]
    assert proposer.grades(first) == [2, 2, 3, 3]
    assert proposer.grades(second) == []
    assert proposer.propose([DraftRequest(first, 2)])[0].tokens == [3, 1]


def test_drafts_are_looked_up_again_when_the_text_has_grown() -> None:
    proposer, request = NGramProposer(3), new_request(0)
    request.append(1)
    assert proposer.grades(request) == [1, 2, 2]
    request.append(2)
    assert proposer.propose([DraftRequest(request, 3)])[0].tokens == [3, 1, 2]
    assert proposer.grades(request) == [2, 2, 3]


def test_what_a_request_that_ended_said_stays_in_the_pool() -> None:
    proposer, request = NGramProposer(2), new_request(0)
    for token in (7, 8):
        request.append(token)
    proposer.propose([DraftRequest(request, 2)])
    proposer.forget(request)
    proposer.forget(new_request(5))
    assert proposer._texts == proposer._chains == {}
    again = new_request(0)
    again.append(7)
    assert proposer.propose([DraftRequest(again, 2)])[0].tokens == [8]


def test_drafts_go_on_behind_single_tokens() -> None:
    pool = NGramPool()
    text_of([5, 1, 2], pool)
    text_of([7, 2, 9], pool)
    assert propose(text_of([8, 1], pool), 4) == [2, 9]
