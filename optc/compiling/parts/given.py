"""Inputs that a user gives to judge a model of several parts by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.system.options.user_text import read_user_text


def check_given(given: Mapping[str, Any], models: str) -> Sequence[Any]:
    """The ``inputs`` of what a user gave.

    Raises:
        InputError: There is anything else, which is not for such ``models``.
    """
    for name, value in given.items():
        if value and name != "inputs":
            raise InputError(f"is not for {models}", where=name, hint="leave it out")
    found: Sequence[Any] = given.get("inputs", ())
    return found


def read_lines(given: Sequence[Any], what: str) -> tuple[str, ...]:
    """The lines of files of text that are not empty: ``what``, such as prompts, one a line.

    Raises:
        InputError: A file cannot be read or is no text, or none has a line.
    """
    found = tuple(line for one in given for line in _lines(one, what))
    if given and not found:
        raise InputError("no file has a line", where="inputs", hint=f"{what}, one a line")
    return found


def _lines(one: Any, what: str) -> Iterator[str]:
    if not isinstance(one, str | Path):
        raise InputError(
            f"the model is judged by {what}, not by {type(one).__name__}",
            where="inputs",
            hint=f"give files of text: {what}, one a line",
        )
    lines = (line.strip() for line in read_user_text(Path(one)).splitlines())
    return filter(None, lines)
