"""The error tree: what an error prints and with which code."""

from __future__ import annotations

import pytest

from optc import errors
from optc.errors import InputError, OptcError


def test_a_message_says_what_where_and_what_to_do() -> None:
    assert InputError("wrong").render() == "wrong"
    assert InputError("wrong", where="here").render() == "here: wrong"
    assert InputError("wrong", hint="mend it").render() == "wrong (mend it)"
    whole = InputError("wrong", where="here", hint="mend it")
    assert str(whole) == whole.render() == "here: wrong (mend it)"
    assert whole.to_json() == {
        "kind": "input",
        "message": "wrong",
        "where": "here",
        "hint": "mend it",
    }


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("InputError", 2),
        ("UnsupportedError", 2),
        ("RequestError", 2),
        ("UnavailableError", 3),
        ("GateError", 4),
    ],
)
def test_exit_codes(name: str, code: int) -> None:
    error: type[OptcError] = getattr(errors, name)
    assert error.exit_code == code
    assert error.kind == name.removesuffix("Error").lower()
