"""The options of ``optc run`` that ask for structured output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from optc.cli.valid_text import valid_text
from optc.errors import InputError

Command = TypeVar("Command", bound=Callable[..., Any])

#: What the options are called.
STRUCTURED = ("json_schema", "regex", "grammar", "choice")
_FILE = click.Path(path_type=Path, dir_okay=False)


def structured_options(command: Command) -> Command:
    """Add ``--json-schema``, ``--regex``, ``--grammar`` and ``--choice`` to a command."""
    for option in (
        click.option(
            "--choice",
            multiple=True,
            callback=valid_text,
            help="The output is one of these texts.",
        ),
        click.option(
            "--grammar", type=_FILE, help="The output is a text of this Lark grammar (a file)."
        ),
        click.option(
            "--regex",
            callback=valid_text,
            help="The output matches this regular expression as a whole.",
        ),
        click.option(
            "--json-schema", type=_FILE, help="The output is JSON of this schema (a file)."
        ),
    ):
        command = option(command)
    return command


def structured_parameters(
    json_schema: Path | None, regex: str | None, grammar: Path | None, choice: tuple[str, ...]
) -> dict[str, Any]:
    """The sampling parameters that the options stand for.

    Raises:
        InputError: A file cannot be read.
    """
    return {
        "json_schema": _read("--json-schema", json_schema),
        "regex": regex,
        "grammar": _read("--grammar", grammar),
        "choice": choice or None,
    }


def _read(option: str, path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"cannot read {path}: {reason}", where=option) from error
