"""The pool against a dictionary of all contexts, and what it forgets."""

from __future__ import annotations

import pytest

from optc.runtime.speculative.drafters.ngram_pool import LONGEST, NGramPool


def test_the_longest_known_end_decides() -> None:
    pool = NGramPool()
    pool.read("", [1, 2, 3, 4, 9, 3, 5], 0)
    assert LONGEST == 3
    assert pool.follower("", [2, 3], 0) == (4, 2)
    assert pool.follower("", [7, 3], 0) == (5, 1), "what followed last"
    assert pool.follower("", [0, 1, 2, 3], 0) == (4, 3)
    assert pool.follower("", [3], 0) == (5, 1)
    assert pool.follower("", [8], 0) == pool.follower("", [], 0) == (-1, 0)


@pytest.mark.parametrize(
    ("longer_than", "found"), [(0, (4, 3)), (2, (4, 3)), (3, (-1, 0)), (5, (-1, 0))]
)
def test_shorter_contexts_than_wanted_are_not_looked_up(
    longer_than: int, found: tuple[int, int]
) -> None:
    pool = NGramPool()
    pool.read("", [1, 2, 3, 4], 0)
    assert pool.follower("", [1, 2, 3], longer_than) == found


def test_salts_share_nothing() -> None:
    pool = NGramPool()
    pool.read("a", [1, 2], 0)
    assert pool.follower("a", [1], 0) == (2, 1)
    assert pool.follower("b", [1], 0) == (-1, 0)


def test_tokens_before_the_start_are_context_only() -> None:
    pool = NGramPool()
    pool.read("", [1, 2, 3, 4], 2)
    assert pool.follower("", [1], 0) == (-1, 0)
    assert pool.follower("", [2], 0) == (3, 1)
    assert pool.follower("", [1, 2], 0) == (3, 2)
    assert len(pool) == 5, "1 2 and 2 before 3; 1 2 3, 2 3 and 3 before 4"


def test_one_token_alone_follows_nothing() -> None:
    pool = NGramPool()
    pool.read("", [1], 0)
    pool.read("", [1, 2], 2)
    assert len(pool) == 0


@pytest.mark.parametrize("most", [1, 2, 3, 30])
def test_a_full_generation_replaces_the_one_before(most: int) -> None:
    """Distinct tokens: each but the first brings a context of one token, the third of two, and the
    fourth of three."""
    pool = NGramPool(most)
    young = old = 0
    piece = max(1, most // 3)
    for first in range(1, 40, piece):
        pool.read("", list(range(min(first + piece, 40))), first)
        young += sum(min(3, end) for end in range(first, min(first + piece, 40)))
        if young >= most:
            young, old = 0, young
        assert len(pool) == young + old


def test_a_long_text_is_read_in_pieces_of_one_generation() -> None:
    whole, parts = NGramPool(6), NGramPool(6)
    tokens = list(range(50))
    whole.read("", tokens, 0)
    for first in range(1, 50, 2):
        parts.read("", tokens[: first + 2], first)
    assert len(whole) == len(parts)
    known = [whole.follower("", tokens[:end], 0)[0] for end in range(1, 50)]
    assert known == [parts.follower("", tokens[:end], 0)[0] for end in range(1, 50)]
    assert known == [-1] * 46 + [47, 48, 49]


def test_a_pool_of_one_context_keeps_the_last_token_of_a_text() -> None:
    pool = NGramPool(1)
    pool.read("", [1, 2, 3, 4, 5], 0)
    assert len(pool) == 3
    assert [pool.follower("", [token], 0)[0] for token in (1, 2, 3, 4)] == [-1, -1, -1, 5]


def test_a_pool_holds_the_latest_twenty_thousand_tokens_but_not_all() -> None:
    pool = NGramPool()
    pool.read("", range(100_000), 0)
    assert pool.follower("", [80_000], 0) == (80_001, 1)
    assert len(pool) < 200_000, "of 300,000 contexts"


def test_the_younger_of_two_followers_is_found() -> None:
    pool = NGramPool(1)
    pool.read("", [1, 2], 0)
    pool.read("", [1, 3], 0)
    assert pool.follower("", [1], 0) == (3, 1)
    assert len(pool) == 1, "the generation of the first text is gone"
