"""Progress of long work on stderr: a live line on a terminal, else one line a stage."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from optc.cli.logs import is_quiet
from optc.progress import Progress, no_progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

#: Seconds between two lines about one stage, where there is no terminal.
_EVERY_S = 10.0


@contextmanager
def progress_on_stderr() -> Iterator[Progress]:
    """A `Progress` that shows stages on stderr while the block runs; of a quiet command none."""
    if is_quiet():
        yield no_progress
        return
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
    """Prints each stage once, when it begins, and of a long one now and then where it stands.

    Args:
        clock: Seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stage = ""
        self._began = self._told = 0.0
        self._first = 0

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = self._clock()
        if stage != self._stage:
            self._stage, self._began, self._told, self._first = stage, now, now, done
            click.echo(f"· {stage}", err=True)
        elif total and done > self._first and now - self._told >= _EVERY_S:
            self._told = now
            left = (now - self._began) / (done - self._first) * (total - done)
            click.echo(f"· {stage}: {done}/{total}, about {_duration(left)} left", err=True)


def _duration(seconds: float) -> str:
    """A time for reading: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
