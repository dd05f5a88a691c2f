"""Options of commands that judge: conditions, and files for a pipeline."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from optc.errors import InputError
from optc.proof.conditions.summary import Summary, junit, markdown
from optc.system.whole_file import write_whole

F = TypeVar("F", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path)
#: Names of the parameters of `summary_options`.
FILES = ("markdown", "junit")


def summary_options(command: F) -> F:
    """Add ``--markdown`` and ``--junit`` to a command, as arguments of these names."""
    for name, what in (("junit", "JUnit XML"), ("markdown", "Markdown")):
        help = f"Write verdicts and figures to this file as {what}."
        command = click.option(f"--{name}", type=_FILE, metavar="FILE", help=help)(command)
    return command


def require_option(command: F) -> F:
    """Add ``--require`` to a command, repeated, as its argument ``require``."""
    help = "Exit with 4 unless it holds: 'decode_tokens_per_s>=100'; repeated."
    return click.option("--require", multiple=True, metavar="CONDITION", help=help)(command)


@dataclass(frozen=True)
class SummaryFiles:
    """The files that a command writes its summary to; None is no file."""

    markdown: Path | None
    junit: Path | None

    def check(self) -> None:
        """Refuse, before the command's work, files that could not be written after it.

        Raises:
            InputError: A folder is missing or cannot be written, or the file is one.
        """
        for option, path in (("--markdown", self.markdown), ("--junit", self.junit)):
            if path is None:
                continue
            folder = path.parent
            if path.is_dir():
                raise InputError(f"{path} is a folder", where=option, hint="name a file")
            if not folder.is_dir():
                raise InputError(f"there is no folder {folder}", where=option)
            if not os.access(path if path.exists() else folder, os.W_OK):
                raise InputError(f"{path} cannot be written", where=option)

    def write(self, summary: Summary) -> None:
        """Write the files that were asked for; what is there is replaced.

        Raises:
            InputError: One cannot be written.
        """
        for option, path, made in (
            ("--markdown", self.markdown, markdown),
            ("--junit", self.junit, junit),
        ):
            if path is None:
                continue
            try:
                write_whole(path, made(summary).encode())
            except OSError as error:
                problem = f"cannot write {path}: {error.strerror}"
                raise InputError(problem, where=option) from error
