"""Progress of long work on stderr: a live line on a terminal, else one line a stage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from optc.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


@contextmanager
def progress_on_stderr() -> Iterator[Progress]:
    """A `Progress` that shows stages on stderr while the block runs."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    # A stream of its own: the block redirects stdout to sys.stderr, which rich would wrap.
    console = Console(file=sys.stderr)
    with Bars(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as bars:
        yield _Live(bars)


class _Lines:
    """Prints each stage once, when it begins."""

    def __init__(self) -> None:
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            self._stage = stage
            click.echo(f"· {stage}", err=True)


class _Live:
    """One bar a stage; a stage is finished when the next one begins."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._stage = ""
        self._task: TaskID | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage or self._task is None:
            self._finish()
            self._stage = stage
            self._task = self._bars.add_task(stage, total=None, count="")
        count = f"{done}/{total}" if total else ""
        self._bars.update(self._task, completed=done, total=total or None, count=count)

    def _finish(self) -> None:
        if self._task is not None:
            self._bars.update(self._task, total=1, completed=1, count="")
            self._bars.stop_task(self._task)
