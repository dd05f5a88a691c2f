"""`Objectives`: how many answers were as fast as they should be: goodput, compare Zhong et al.,
2024 (DistServe)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

from optc.errors import OptcError
from optc.runtime.engine import Engine
from optc.runtime.handle import Handle
from optc.runtime.requests.request_metrics import RequestMetrics


@dataclass
class _Tally:
    """Texts that ended, and those of them that met all objectives."""

    within: int = 0
    of: int = 0


class Objectives:
    """Bounds on each answer, and counts of those that met them. Cancelled answers do not count;
    failed ones count as late.

    Args:
        ttft_s: On the time to first token; None bounds nothing.
        itl_s: On every gap between two tokens; None bounds nothing.
    """

    def __init__(self, ttft_s: float | None = None, itl_s: float | None = None) -> None:
        self.ttft_s = ttft_s
        self.itl_s = itl_s
        self._tallies: WeakKeyDictionary[Engine, _Tally] = WeakKeyDictionary()

    @property
    def stated(self) -> bool:
        """There are any."""
        return self.ttft_s is not None or self.itl_s is not None

    def watch(self, engine: Engine, handle: Handle) -> None:
        """Count a request once it has ended."""
        if self.stated:
            tally = self._tallies.setdefault(engine, _Tally())
            handle.add_done_callback(partial(self._count, tally))

    def counted(self, engine: Engine) -> tuple[int, int]:
        """Texts of an engine that met all objectives, and all that ended."""
        tally = self._tallies.get(engine, _Tally())
        return tally.within, tally.of

    def met(self, one: RequestMetrics) -> bool:
        """An answer stayed within all bounds."""
        if one.ttft_s is None:
            return False
        pairs = ((self.ttft_s, one.ttft_s), (self.itl_s, max(one.itl_s, default=0.0)))
        return all(bound is None or seconds <= bound for bound, seconds in pairs)

    def to_json(self) -> dict[str, float | None] | None:
        """``ttft_ms`` and ``itl_ms``; None where there are none."""
        if not self.stated:
            return None
        bounds = {"ttft_ms": self.ttft_s, "itl_ms": self.itl_s}
        return {name: None if one is None else 1e3 * one for name, one in bounds.items()}

    def _count(self, tally: _Tally, handle: Handle) -> None:
        """On the engine's thread, which alone changes the tally."""
        try:
            completions = handle.result(0).completions
        except OptcError:
            tally.of += 1
            return
        counted = [one for one in completions if one.finish_reason != "cancelled"]
        tally.of += len(counted)
        tally.within += sum(one.error is None and self.met(one.metrics) for one in counted)
