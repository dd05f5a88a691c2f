from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from optc.errors import RequestError
from optc.runtime.checks import (
    as_tuple,
    check_int,
    check_number,
    checked_texts,
    encodes,
    invalid,
    shown,
)


@pytest.mark.parametrize("value", [2, 5, np.int64(3), np.uint8(4)])
def test_integers_within_their_range(value: Any) -> None:
    check_int("n", value, 2, 5)
    check_int("n", value, 2, None)


@pytest.mark.parametrize(
    ("value", "high", "message"),
    [
        (1, 5, "n=1 is not allowed (must be from 2 to 5; none is 2)"),
        (6, 5, "n=6 is not allowed (must be from 2 to 5; none is 2)"),
        (1, None, "n=1 is not allowed (must be at least 2; none is 2)"),
        (True, 5, "n=True is not allowed (must be an integer; none is 2)"),
        (3.0, 5, "n=3.0 is not allowed (must be an integer; none is 2)"),
        ("3", 5, "n='3' is not allowed (must be an integer; none is 2)"),
    ],
)
def test_integers_out_of_their_range(value: Any, high: int | None, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_int("n", value, 2, high, "; none is 2")
    assert str(caught.value) == f"sampling parameters: {message}"


@pytest.mark.parametrize("value", [1, 0.5, np.float32(2), float("nan"), 10**300])
def test_numbers(value: Any) -> None:
    check_number("p", value)


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        ("1", "a number"),
        (True, "a number"),
        (1j, "a number"),
        (None, "a number"),
        (10**400, "a number that a float holds"),
    ],
)
def test_what_is_no_number(value: Any, allowed: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_number("p", value)
    assert caught.value.hint == f"must be {allowed}"


def test_lists_are_copied_and_bounded() -> None:
    given = [1, 2]
    made = as_tuple("stop", given, 2)
    given.append(3)
    assert made == (1, 2)
    assert as_tuple("stop", {1}, 2) == (1,)
    with pytest.raises(RequestError, match="must be a list of 2 at most"):
        as_tuple("stop", given, 2)
    with pytest.raises(RequestError, match="must be a list of 2 at most"):
        as_tuple("stop", itertools.count(), 2)


@pytest.mark.parametrize("value", ["ab", b"ab", 3, None, np.array(3), np.ma.masked])
def test_what_is_no_list(value: Any) -> None:
    with pytest.raises(RequestError, match=r"must be a list\)"):
        as_tuple("stop", value, 9)


def test_messages_are_of_bounded_length() -> None:
    assert len(str(invalid("stop", ["x" * 10**6] * 10**6, "short"))) < 300
    assert shown(10**5000) == "(a number of thousands of digits)"
    nested: object = "x"
    for _ in range(9):
        nested = [nested] * 9
    assert len(shown(nested)) < 300
    assert shown("a") == "'a'"


def test_lone_surrogates_are_no_unicode() -> None:
    assert encodes("naïve 🙂")
    assert not encodes("a\ud800")


def test_texts_of_any_iterable_are_a_list() -> None:
    assert checked_texts(iter(["a", ""])) == ["a", ""]
    assert checked_texts((("a", "b"),)) == [("a", "b")]
    assert list(checked_texts(np.array(["a", "b"]))) == ["a", "b"]


@pytest.mark.parametrize("texts", ["a", b"a", None, {"a": 1}, [1], [None], [b"a"], [("a",)], 3])
def test_what_is_no_list_of_texts(texts: Any) -> None:
    with pytest.raises(RequestError, match="texts are no list of texts"):
        checked_texts(texts)


@pytest.mark.parametrize("text", ["a\ud800", ("a", "\udc80b")])
def test_texts_of_lone_surrogates_are_refused_by_their_place(text: Any) -> None:
    with pytest.raises(RequestError, match="text 1: it is not valid Unicode"):
        checked_texts(["a", text])
