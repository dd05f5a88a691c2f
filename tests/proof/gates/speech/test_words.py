"""Word error rates."""

from __future__ import annotations

import pytest

from optc.proof.gates.speech.words import error_rate, errors, words


@pytest.mark.parametrize(
    ("found", "wanted", "count"),
    [("a b c", "a b c", 0), ("a c", "a b c", 1), ("a x c d", "a b c", 2), ("", "a b", 2)],
)
def test_errors(found: str, wanted: str, count: int) -> None:
    assert errors(words(found), words(wanted)) == count


def test_marks_and_cases_are_no_errors() -> None:
    assert words("It's  TIME, Mr. Ross!") == ["it's", "time", "mr", "ross"]


def test_rate() -> None:
    assert error_rate([("a b", "a c"), ("d e", "d e")]) == 0.25
    assert error_rate([("", "")]) is None
