"""Progress of long work on stderr: a live line on a terminal, else lines now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

import click

from optc.cli.logs import is_quiet
from optc.system.progress import Progress, no_progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import ProgressColumn, TaskID

#: Seconds between two lines about one stage, where there is no terminal.
_EVERY_S = 30.0
#: Seconds between two looks at whether such a line is due.
_LOOK_S = 5.0
#: Seconds after the first result from which a pace is known, and between two estimates of it: what
#: ends together, such as a batch's answers, is one event.
_ENOUGH_S, _AGAIN_S = 5.0, 1.0


@contextmanager
def progress_on_stderr() -> Iterator[Progress]:
    """A `Progress` that shows stages on stderr while the block runs; of a quiet command none."""
    if is_quiet():
        yield no_progress
        return
    if not sys.stderr.isatty():
        lines = _Lines()
        with _ticking(lines.tick):
            yield lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        _left_column(),
    )
    # A stream of its own: the block redirects stdout to sys.stderr, which rich would wrap.
    console = Console(file=sys.stderr)
    with Bars(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as bars:
        yield _Live(bars)


class _Stage:
    """A stage, and how long it will still take: by the pace since its first result, because what
    comes before that, such as warming up, does not come again.

    Args:
        done: Where it begins.
        now: When.
    """

    def __init__(self, name: str, done: int, now: float) -> None:
        self.name, self.began = name, now
        self.done, self.total = done, 0
        self._begun_with = done
        self._first = self._last = self._paced = 0.0
        self._pace: float | None = None

    def add(self, done: int, total: int, now: float) -> None:
        """Record the progress at ``now``."""
        self.total = total
        if done <= self.done:
            return
        if self.done == self._begun_with:
            self._first = self._paced = now
        elif now - self._paced >= _AGAIN_S:
            # Results before this one: when one comes, as many as come with it are not counted yet.
            self._pace = (now - self._first) / (self.done - self._begun_with)
            self._paced = now
        self.done, self._last = done, now

    def ends(self) -> float | None:
        """When it will be finished, on the clock of `add`; None as long as that cannot be said."""
        if not self.total or self._pace is None or self._paced - self._first < _ENOUGH_S:
            return None
        return self._last + self._pace * (self.total - self.done)


class _Lines:
    """Prints each stage once, when it begins, and of a long one now and then where it stands.

    Args:
        clock: Seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stage: _Stage | None = None
        self._told = 0.0
        self._lock = Lock()

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = self._clock()
        with self._lock:
            if self._stage is None or stage != self._stage.name:
                self._stage, self._told = _Stage(stage, done, now), now
                click.echo(f"· {stage}", err=True)
            self._stage.add(done, total, now)
            self._tell(self._stage, now)

    def tick(self) -> None:
        """Say where a stage stands of which nothing was heard for long."""
        with self._lock:
            if self._stage is not None:
                self._tell(self._stage, self._clock())

    def _tell(self, stage: _Stage, now: float) -> None:
        if now - self._told < _EVERY_S or (stage.total and stage.done >= stage.total):
            return
        self._told = now
        parts = [f"{stage.done}/{stage.total}"] if stage.total else []
        parts.append(f"{_duration(now - stage.began)} so far")
        if (ends := stage.ends()) is not None and ends > now:
            parts.append(f"about {_duration(ends - now)} left")
        click.echo(f"· {stage.name}: {', '.join(parts)}", err=True)


@contextmanager
def _ticking(tick: Callable[[], None]) -> Iterator[None]:
    """Call ``tick`` every few seconds while the block runs."""
    ended = Event()

    def look() -> None:
        while not ended.wait(_LOOK_S):
            tick()

    thread = Thread(target=look, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _duration(seconds: float) -> str:
    """A time for reading: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _left_column(clock: Callable[[], float] = time.monotonic) -> ProgressColumn:
    """A column with the time that a task of `_Live` will still take, counted down."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Left(ProgressColumn):
        def render(self, task: Task) -> Text:
            ends = task.fields["ends"]
            if ends is None or task.finished:
                return Text("")
            return Text(f"{_duration(max(0.0, ends - clock()))} left", style="progress.remaining")

    return Left()


class _Live:
    """One bar a stage; a stage is finished when the next one begins.

    Args:
        clock: That of `_left_column`.
    """

    def __init__(self, bars: Bars, clock: Callable[[], float] = time.monotonic) -> None:
        self._bars, self._clock = bars, clock
        self._stage: _Stage | None = None
        self._task: TaskID | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = self._clock()
        if self._stage is None or stage != self._stage.name or self._task is None:
            self._finish()
            self._stage = _Stage(stage, done, now)
            self._task = self._bars.add_task(stage, total=None, count="", ends=None)
        self._stage.add(done, total, now)
        count = f"{done}/{total}" if total else ""
        ends = self._stage.ends()
        self._bars.update(self._task, completed=done, total=total or None, count=count, ends=ends)

    def _finish(self) -> None:
        if self._task is not None:
            self._bars.update(self._task, total=1, completed=1, count="")
            self._bars.stop_task(self._task)
