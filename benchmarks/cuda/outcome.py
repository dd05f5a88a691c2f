"""The end of a stage of `benchmarks.cuda.everything`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """The end of a stage.

    Attributes:
        name: Of the stage.
        command: That was run, behind ``python -m``.
        state: ``done``, ``failed``, ``cut off`` or ``no time``.
        seconds: That it took.
        said: Its last lines.
    """

    name: str
    command: str
    state: str
    seconds: float = 0.0
    said: tuple[str, ...] = ()
