"""The handling of the library's log by the command line: ``-v``, ``--log-file``, and ``-q``."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from optc.cli.output import visible
from optc.errors import InputError
from optc.system.logs.logger import ROOT, logger

_QUIET = "optc.quiet"
_LEVELS = (logging.INFO, logging.DEBUG)
_attached: list[logging.Handler] = []


class _Stderr(logging.Handler):
    """Lines on stderr. Names come from models and artifacts, so that control characters are
    spelled out."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"· {record.name}: {visible(self.format(record))}", err=True)


def show_log(verbose: int) -> None:
    """Show the log on stderr: stages and loads, from 2 on every request and file too."""
    if verbose:
        _attach(_Stderr(), _LEVELS[min(verbose, len(_LEVELS)) - 1])


def show_warnings() -> None:
    """Show warnings and errors of the log on stderr, if nothing shows more: for commands that go on
    behind them."""
    if not any(isinstance(handler, _Stderr) for handler in _attached):
        _attach(_Stderr(), logging.WARNING)


def write_log(path: Path) -> None:
    """Append all of the log to a file, with times.

    Raises:
        InputError: It cannot be written.
    """
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot write {path}: {reason}", where="--log-file") from error
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S%z")
    )
    _attach(handler, logging.DEBUG)


def be_quiet(context: click.Context) -> None:
    """Show neither progress nor notes while the command runs."""
    context.find_root().meta[_QUIET] = True


def is_quiet() -> bool:
    """True if the command that runs shows neither."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_QUIET))


def note(text: str) -> None:
    """Print something on stderr that is neither a result nor wrong, unless the command is quiet."""
    if not is_quiet():
        click.echo(text, err=True)


def detach_logs() -> None:
    """Undo what the command's options did to the log."""
    root = logging.getLogger(ROOT)
    while _attached:
        handler = _attached.pop()
        root.removeHandler(handler)
        handler.close()
    root.setLevel(logging.NOTSET)


def _attach(handler: logging.Handler, level: int) -> None:
    handler.setLevel(level)
    root = logger(ROOT)
    root.addHandler(handler)
    root.setLevel(min(level, root.level or level))
    _attached.append(handler)
