"""Every character of a token is to be seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.artifact.pages.tokens import token_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" ", "␣"),
        ("  ", "␣␣"),
        (" def", "␣def"),
        ("a b ", "a b␣"),
        ("\n", "\\n"),
        ("\t ", "\\t␣"),
        ("", ""),
        ("x", "x"),
    ],
)
def test_blanks_are_shown(text: str, shown: str) -> None:
    assert token_text(text) == shown


@given(st.text(st.sampled_from(" \n\t\r\u00a0\u2009"), min_size=1))
def test_a_token_of_blanks_is_not_empty(text: str) -> None:
    assert token_text(text).strip()
