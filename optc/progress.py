"""How long work reports where it stands."""

from __future__ import annotations

from collections.abc import Callable

#: ``progress(stage, done, total)``: ``total`` 0 means that it is not known how much there is.
Progress = Callable[[str, int, int], None]


def no_progress(stage: str, done: int, total: int) -> None:
    """Report nothing."""
