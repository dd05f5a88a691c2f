"""Values for chat templates: plain copies, in which no control text is left."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.errors import RequestError, RequestTypeError
from optc.runtime.text.chat_values import Marks, plain_values, unmarked

#: The first two characters that may stand for others.
FIRST, SECOND = chr(0xF0000), chr(0xF0001)


class Name(str):
    """A text of a class of its own."""


def test_copies_are_of_the_plain_types() -> None:
    given = {Name("a"): (1, 2.5, True, None), "b": [Name("c"), {"d": ()}]}
    copy: Any = plain_values(given, "messages")
    assert copy == {"a": [1, 2.5, True, None], "b": ["c", {"d": []}]}
    assert all(type(key) is str for key in copy)
    assert type(copy["b"][0]) is str


@pytest.mark.parametrize("value", [b"a", bytearray(b"a"), memoryview(b"a"), {1}, object()])
def test_what_json_has_not_is_refused(value: object) -> None:
    with pytest.raises(RequestTypeError, match=r"messages: .* is not allowed"):
        plain_values([value], "messages")


def test_what_is_nested_too_deeply_is_refused() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(RequestError, match="messages: nested too deeply"):
        plain_values(value, "messages")


def test_half_of_a_character_is_refused() -> None:
    with pytest.raises(RequestError, match="messages: not valid Unicode"):
        plain_values({"content": "\ud800"}, "messages")


def test_control_texts_are_marked_at_any_depth_and_found_again() -> None:
    values = {"a<|end|>b": ["<s>", 1, None, {"x": "c<|end|><|end|>"}]}
    marks = Marks(["<|end|>", "<s>"], values)
    assert marks.values == {
        f"a{FIRST}|end|>b": [f"{FIRST}s>", 1, None, {"x": f"c{FIRST}|end|>{FIRST}|end|>"}]
    }
    assert marks.restored == {FIRST: "<"}
    assert unmarked(f"c{FIRST}|end|>", marks.restored) == "c<|end|>"


def test_each_first_character_has_a_mark_of_its_own() -> None:
    marks = Marks(["[b", "<a", "<c"], "[b <a <c")
    assert marks.values == f"{SECOND}b {FIRST}a {FIRST}c"
    assert marks.restored == {FIRST: "<", SECOND: "["}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abc<|e", f"abc{FIRST}|e"),  # what follows may complete it
        ("abc<", f"abc{FIRST}"),
        ("abc<|ex", "abc<|ex"),
        ("<|e b", "<|e b"),
        ("<|end|<", f"<|end|{FIRST}"),
        ("<|end", f"{FIRST}|end"),  # the whole text is one
        ("<|end|", f"{FIRST}|end|"),  # of the greatest length
        ("<|", f"{FIRST}|"),
        ("<", FIRST),
        ("", ""),
    ],
)
def test_the_beginning_of_a_control_text_is_marked_at_the_end_only(
    text: str, expected: str
) -> None:
    assert Marks(["<|end|>"], text).values == expected


def test_beginnings_and_occurrences_may_overlap() -> None:
    assert Marks(["<<>"], "<<<>").values == f"<{FIRST}<>"
    assert Marks(["<<"], "a<<<b").values == f"a{FIRST}{FIRST}<b"
    assert Marks(["<<>"], "a<<").values == f"a{FIRST}{FIRST}"


@settings(max_examples=200, deadline=None)
@given(st.sets(st.text("<|x", min_size=1, max_size=5), max_size=4), st.text("<|x", max_size=9))
def test_marked_is_where_a_control_text_begins_or_may_come(controls: set[str], text: str) -> None:
    """By trying every place: what follows there begins with a control text, or the other way."""
    marks = Marks(sorted(controls), text)
    marked = [
        any(text[at:].startswith(one) or one.startswith(text[at:]) for one in controls)
        for at in range(len(text))
    ]
    characters = str(marks.values)
    assert [character not in "<|x" for character in characters] == marked
    assert unmarked(characters, marks.restored) == text


def test_nothing_is_marked_without_control_texts() -> None:
    marks = Marks([], {"a": ["<s>"]})
    assert (marks.values, marks.restored) == ({"a": ["<s>"]}, {})


@pytest.mark.parametrize("values", [["<s>", FIRST], {FIRST: "<s>"}, {"a": [{"b": FIRST + "<s>"}]}])
def test_a_character_that_is_in_use_stands_for_no_other(values: object) -> None:
    assert Marks(["<s>"], values).restored == {SECOND: "<"}


def test_all_characters_may_be_in_use() -> None:
    text = "".join(map(chr, range(0xF0000, 0xFFFFE)))
    with pytest.raises(RequestError, match="all characters for private use are in use"):
        Marks(["<s>"], text)
    assert Marks(["<s>"], text[:-1]).restored == {}
