"""`PassRecord`: what a pass of a pipeline did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from optc.ir.pipeline.base import PassReport
from optc.ir.pipeline.phase import Effect


@dataclass(frozen=True)
class PassRecord:
    """One pass that ran: its place in the pipeline, what it did and how long it took.

    ``warning`` is one sentence where it should have found something to rewrite, else empty;
    ``effects``, ``removes`` and ``leaves_class`` are the pass's.
    """

    index: int
    name: str
    spec: str
    seconds: float
    report: PassReport
    warning: str = ""
    effects: Effect = Effect.NONE
    removes: str = ""
    leaves_class: str = ""

    def to_json(self) -> dict[str, Any]:
        """For reports."""
        return {
            "name": self.name,
            "count": self.report.count,
            "seconds": self.seconds,
            "details": self.report.details,
            "skipped": self.report.skipped,
            "facts": self.report.facts,
            "warning": self.warning,
        }


def warnings_of(runs: Iterable[PassRecord]) -> tuple[str, ...]:
    """The warnings of passes, also about what they should have found and did not."""
    found: list[str] = []
    for run in runs:
        found += [run.warning] if run.warning else []
        found += [f"pass {run.name}: {text}" for text in run.report.warnings]
    return tuple(found)
