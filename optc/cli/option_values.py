"""Click callbacks for the kinds of values (`optc.system.options.option.Kind`) that are more than a
type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from optc.system.options.user_text import read_user_text
from optc.system.safe_json import JSONError, parse_json


def count_or_auto(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | str | None:
    """A number of at least 1, or ``auto``."""
    if value is None or value == "auto":
        return value
    if not value.isdecimal() or int(value) < 1:
        what = (parameter.metavar or "number").partition("|")[0].lower()
        raise click.BadParameter(f"{value!r} is neither a number of {what} nor auto")
    return int(value)


def biases(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> dict[int, float]:
    """``5=-1.5`` several times: token ids and numbers."""
    found = {}
    for text in value:
        token, _, bias = text.partition("=")
        try:
            found[int(token)] = float(bias)
        except ValueError as error:
            example = "a token id and a number, such as 5=-1.5"
            raise click.BadParameter(f"{text!r} is not {example}") from error
    return found


def truth(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> bool | str | None:
    """``true`` and ``false`` as what they mean; other words as they are."""
    return value if value is None else {"true": True, "false": False}.get(value, value)


def json_object(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> dict[str, Any]:
    """A JSON object; none is an empty one."""
    try:
        found = {} if value is None else parse_json(value)
    except JSONError as error:
        raise click.BadParameter(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise click.BadParameter("not a JSON object")
    return found


def file_text(context: click.Context, parameter: click.Parameter, value: Path | None) -> str | None:
    """The text in a file.

    Raises:
        InputError: It cannot be read.
    """
    return None if value is None else read_user_text(value, parameter.opts[0])
