"""Pipelines as text."""

from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.pipeline.spec import SpecEntry, parse_spec


def test_entries_and_their_options_are_texts() -> None:
    assert parse_spec(" one , two{ a=1, b=x=y ,} ,three{}") == [
        SpecEntry("one", {}),
        SpecEntry("two", {"a": "1", "b": "x=y"}),
        SpecEntry("three", {}),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no pass"),
        ("one,", "'' is no pass"),
        ("{a=1}", "'{a=1}' is no pass"),
        ("one{a=1}b", "'one{a=1}b' is no pass"),
        ("one{a}", "'a' is not option=value"),
        ("one{=1}", "'=1' is not option=value"),
        ("one{a=}", "'a=' is not option=value"),
        ("one{a=1", "a brace is never closed"),
        ("one}", "unbalanced braces at '}'"),
        ("one{a={1}}", "unbalanced braces at '{1}}'"),
    ],
)
def test_what_cannot_be_read_is_shown(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_spec(text)
    assert caught.value.message == message


@pytest.mark.parametrize(("text", "marked"), [("true", True), ("TRUE", True), ("false", False)])
def test_a_mark_is_true_or_false(text: str, marked: bool) -> None:
    assert SpecEntry("one", {"required": text}).marked("required") is marked
    assert not SpecEntry("one", {}).marked("required")
    with pytest.raises(InputError, match="option optional='1' is neither true nor false"):
        SpecEntry("one", {"optional": "1"}).marked("optional")
