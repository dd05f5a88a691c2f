"""Messages that a user types: one line, or several."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

import click

#: Begins and ends a message of several lines.
FENCE = '"""'
_FIRST, _NEXT = "> ", ". "


def read_message(line: Callable[[str], str | None]) -> str | None:
    """The next message: a line, lines that end with a backslash and the one after them, or lines
    between two `FENCE`.

    Args:
        line: Reads a line after a prompt; None at the end.

    Returns:
        None at the end of the input.
    """
    text = line(_FIRST)
    if text is None:
        return None
    if text.lstrip().startswith(FENCE):
        return _fenced(text.lstrip().removeprefix(FENCE), line)
    while text.endswith("\\"):
        text = text[:-1] + "\n" + (line(_NEXT) or "")
    return text


def _fenced(text: str, line: Callable[[str], str | None]) -> str:
    lines = [text]
    while FENCE not in lines[-1]:
        following = line(_NEXT)
        if following is None:
            break
        lines.append(following)
    lines[-1] = lines[-1].partition(FENCE)[0]
    return "\n".join(lines).strip("\n")


def typed_line(prompt: str) -> str | None:
    """A line of stdin without its end; None at the end. A terminal shows the prompt and can be
    edited; neither stands in an output that goes elsewhere."""
    if not sys.stdin.isatty():
        return _piped_line()
    if not sys.stdout.isatty():
        click.echo(prompt, nl=False, err=True)
        return _piped_line()
    with suppress(ImportError):
        import readline  # noqa: F401 - editing and a history of lines, by its import alone
    try:
        return input(prompt)
    except EOFError:
        click.echo()
        return None


def _piped_line() -> str | None:
    line = sys.stdin.readline()
    return line.removesuffix("\n") if line else None
