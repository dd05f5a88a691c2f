"""Reports of how far work has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: ``progress(stage, done, total)``: ``total`` 0 means that it is not known how much there is.
Progress = Callable[[str, int, int], None]


def no_progress(stage: str, done: int, total: int) -> None:
    """Report nothing."""


_told: ContextVar[Progress] = ContextVar("progress", default=no_progress)


@contextmanager
def telling(progress: Progress) -> Iterator[None]:
    """`tell` tells ``progress`` while the block runs: for passes, which are given none."""
    token = _told.set(progress)
    try:
        yield
    finally:
        _told.reset(token)


def tell(stage: str, done: int, total: int) -> None:
    """Report where work stands to whom `telling` names; nothing outside of it."""
    _told.get()(stage, done, total)
