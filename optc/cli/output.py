"""The output of commands: results on stdout, progress and errors on stderr."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TypeVar

import click

from optc.cli.numbers import rounded
from optc.errors import OptcError
from optc.system.units import byte_text as byte_text

if TYPE_CHECKING:
    from rich.table import Table

JSON_FLAG = "--json"
_BEGAN = time.perf_counter()
Command = TypeVar("Command", bound=Callable[..., Any])


def command_seconds() -> float:
    """Seconds since the command began, by the clock on the wall."""
    return time.perf_counter() - _BEGAN


def json_option(command: Command) -> Command:
    """Add ``--json`` to a command, as its argument ``as_json``."""
    return click.option(
        JSON_FLAG, "as_json", is_flag=True, help="Print one JSON object on stdout."
    )(command)


def print_json(command: str, values: Mapping[str, Any], warnings: Sequence[str] = ()) -> None:
    """Print a command's one JSON object, with its ``schema`` and ``warnings``.

    Numbers have the digits of `optc.cli.numbers`; text that stdout's encoding lacks is escaped.
    """
    whole = {"schema": f"optc.{command}.v1", **values, "warnings": list(warnings)}
    escaped = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    click.echo(json.dumps(rounded(whole), ensure_ascii=escaped, allow_nan=False))


#: What moves a terminal's cursor, colours its text or turns it around; not line ends and tabs.
_CONTROL = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]")
#: What begins a new line.
_LINE_END = re.compile("[\\n\\u2028\\u2029]")


def visible(text: str) -> str:
    """A text with its control characters spelled out, such as ``\\x1b``: names in an artifact or a
    model come from others, and a terminal obeys what it is shown."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """A text as one line, its line ends spelled out too: what is quoted from a file must not look
    like a message of its own."""
    return _LINE_END.sub(lambda found: ascii(found[0])[1:-1], visible(text))


def print_error(error: OptcError, as_json: bool) -> int:
    """Print an error, on stderr or as JSON on stdout, and return its exit code.

    An error may carry ``details``: what a failed gate measured belongs in the JSON object too, and
    so do the ``warnings`` among them.
    """
    if as_json:
        details = dict(getattr(error, "details", {}))
        warnings = details.pop("warnings", ())
        print_json("error", {"error": error.to_json(), **details}, warnings)
    else:
        click.echo(f"error: {one_line(error.render())}", err=True)
    return error.exit_code


def print_warnings(warnings: Sequence[str]) -> None:
    """Print warnings on stderr, one a line."""
    for text in warnings:
        click.echo(f"warning: {one_line(text)}", err=True)


@contextmanager
def reserved_stdout() -> Iterator[None]:
    """Send to stderr what libraries and child processes print on stdout meanwhile.

    Exporters and linkers print; a reader of ``--json`` must find one JSON object and no more.
    """
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


#: Columns of results that go into a file or a pipe, where no terminal says how wide it is.
_FILE_WIDTH = 160
#: Most rows of a table: a damaged report may have any number.
_MOST_ROWS = 1000
#: Most characters of one text of a table.
_LONGEST_TEXT = 10_000


def table(
    title: str, *columns: str, numbers: Sequence[str] = (), prose: Sequence[str] = ()
) -> Table:
    """A table with a title.

    Args:
        title: Above it.
        columns: Their headings.
        numbers: Columns that are right-aligned.
        prose: Columns that wrap where the terminal is narrow, beside the last one; others hold
            names, which are of no use if they are cut.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    class ShortTable(Table):
        """Leaves out rows beyond `_MOST_ROWS`, and says how many."""

        left_out = 0

        def add_row(self, *cells: Any, **options: Any) -> None:
            if self.row_count < _MOST_ROWS:
                super().add_row(*cells, **options)
                return
            self.left_out += 1
            self.caption = f"… and {self.left_out} more, all of them with --json"

    made = ShortTable(
        title=title,
        box=SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        pad_edge=False,
    )
    for column in columns:
        number, wraps = column in numbers, column in prose or column == columns[-1]
        made.add_column(
            column,
            justify="right" if number else "left",
            no_wrap=not (number or wraps),  # of numbers only the heading has places to wrap at
            overflow="fold" if wraps else "ellipsis",
        )
    return made


def _shortened(text: str) -> str:
    """A text that a table can hold: laying out megabytes takes minutes, and nobody reads them."""
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}… ({len(text)} characters, all of them with --json)"


def show(*renderables: Any) -> None:
    """Print tables and texts on stdout, their lines without blanks at the end."""
    from rich.console import Console
    from rich.text import Text

    class VisibleConsole(Console):
        """All texts of a table pass here: titles, headings and cells."""

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(_shortened(visible(text)), **options)

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _FILE_WIDTH
    console = VisibleConsole(highlight=False, markup=False, soft_wrap=False, width=width)
    with console.capture() as captured:
        for renderable in renderables:
            console.print(renderable)
    click.echo("\n".join(line.rstrip() for line in captured.get().split("\n")), nl=False)


def figure(value: float | None, digits: int = 4) -> str:
    """A number for reading with so many significant digits; a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}g}"
