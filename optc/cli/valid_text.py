"""Checks that options which are text hold text."""

from __future__ import annotations

import click

from optc.errors import InputError


def valid_text(
    context: click.Context, parameter: click.Parameter, value: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    """The value of an option that is text, as it was given.

    Raises:
        InputError: It holds bytes that the locale's encoding could not decode.
    """
    for text in (value,) if isinstance(value, str) else value or ():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"not valid Unicode: {error.reason}",
                where=parameter.opts[0],
                hint="run it in a UTF-8 locale, such as LC_ALL=C.UTF-8",
            ) from error
    return value
