from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from optc.errors import RequestError
from optc.runtime.tensors.ranked import Ranked, best_first, checked_pairs, checked_query, pairs_of


@pytest.mark.parametrize("query", [None, 3, b"a", ["a"]])
def test_a_query_is_a_text(query: Any) -> None:
    checked_query("", None)
    with pytest.raises(RequestError) as caught:
        checked_query(query, None)
    assert (caught.value.where, caught.value.message) == ("query", "is no text")


@pytest.mark.parametrize("top", [0, -1])
def test_there_is_at_least_one_best(top: int) -> None:
    checked_query("a", 1)
    with pytest.raises(RequestError, match=f"top: is {top}") as caught:
        checked_query("a", top)
    assert caught.value.hint == "at least 1"


@pytest.mark.parametrize("texts", ["ab", [3], ["a", None], ["a", ["b"]]])
def test_texts_are_a_list_of_texts(texts: Any) -> None:
    assert pairs_of("q", []) == []
    assert pairs_of("q", ("a", "")) == [("q", "a"), ("q", "")]
    with pytest.raises(RequestError, match="texts are no list of texts"):
        pairs_of("q", texts)


@pytest.mark.parametrize("other", ["ab", ("a",), ("a", "b", "c"), ("a", 3), (None, "b"), ()])
@pytest.mark.parametrize("before", [0, 1])
def test_pairs_are_two_texts_each(other: Any, before: int) -> None:
    good: list[Any] = [["a", "b"], ("", "c")]
    assert checked_pairs(good) == [("a", "b"), ("", "c")]
    assert checked_pairs([]) == []
    with pytest.raises(RequestError) as caught:
        checked_pairs([*good[:before], other])
    assert (caught.value.where, caught.value.message) == ("pairs", "are no list of pairs of texts")


@pytest.mark.parametrize("scores", list(permutations([3.0, -1.0, 2.0, 2.0])))
@pytest.mark.parametrize("top", [None, 1, 2, 4, 9])
def test_the_best_come_first_and_equals_in_their_order(
    scores: tuple[float, ...], top: int | None
) -> None:
    found = best_first(np.array(scores, np.float32), top)
    assert len(found) == min(top or 4, 4)
    every = [Ranked(index, score) for index, score in enumerate(scores)]
    assert found == sorted(every, key=lambda one: -one.score)[:top]
