"""`LiveCosts`: what steps and drafts take now, against what was measured before."""

from __future__ import annotations

from optc.runtime.speculative.planning.plan_drafts import Costs
from optc.runtime.speculative.planning.rate import MedianLine, RecentMedian

#: Weight of the latest time that drafts took to make.
_NEWEST = 0.3


class LiveCosts:
    """Measured costs, corrected by the steps that are observed. What drafts take is kept in units
    of the plain steps of its time: where all gets slower or faster, it does too.

    Args:
        measured: Before the engines were used.
    """

    def __init__(self, measured: Costs) -> None:
        self._measured = measured
        self._plain: dict[int, RecentMedian] = {}  # by sequences: seconds of now to those measured
        self._drafting = MedianLine(1.0)
        self._drafted = self._verified = False
        self._making = 0.0
        self._extra = MedianLine(0.0)

    def knows(self, sequences: int) -> bool:
        """Enough plain steps of so many sequences were observed: what one takes depends on more
        than its rows."""
        plain = self._plain.get(sequences)
        return plain is not None and plain.known

    def now(self) -> Costs:
        """Costs of now in units of the target's measured times, rounded to what matters."""
        step = self._measured.target.at(1)
        fixed = self._making + max(0.0, self._drafting.at_0) + self._extra.at_0
        return self._measured._replace(
            draft_factor=round(max(1.0, self._drafting.slope), 2),
            row_extra=round(self._extra.slope / step, 3) * step,
            making=round(fixed / step, 2) * step,
        )

    def slower(self, sequences: int) -> float:
        """Seconds of now for each that was measured, in steps of so many sequences."""
        plain = self._plain.get(sequences)
        return plain.value if plain is not None else 1.0

    def plain_s(self, sequences: int) -> float:
        """Seconds of a plain step."""
        return self._measured.target.at(sequences) * self.slower(sequences)

    def row_s(self, sequences: int) -> float:
        """Seconds of one row more in a step of many: of those that prompts share."""
        rows, seconds = self._measured.target.rows, self._measured.target.seconds
        if len(rows) < 2:
            return self.plain_s(1)
        return (seconds[-1] - seconds[-2]) / (rows[-1] - rows[-2]) * self.slower(sequences)

    def observe_plain(self, sequences: int, seconds: float) -> None:
        """Learn from a plain step."""
        plain = self._plain.setdefault(sequences, RecentMedian())
        plain.observe(seconds / self._measured.target.at(sequences))

    def observe_drafts(self, sequences: int, rows: int, seconds: float) -> None:
        """Learn from the verifying part of a step with drafts."""
        if not self._verified:  # as of `observe_making`
            self._verified = True
            return
        drafts = rows - sequences
        plain_s = self.plain_s(sequences)
        expected_s = self._measured.target.at(rows) * self.slower(sequences)
        # with drafts it takes no less than without, and a row no more than a step of its own
        least, most = plain_s - expected_s, drafts * plain_s / sequences
        extra_s = min(max(seconds - expected_s, least), most)
        self._extra.observe(drafts, extra_s / self.slower(sequences))

    def observe_making(self, sequences: int, seconds: float, steps_s: float) -> None:
        """Learn from the making of drafts in a step of so many sequences, of which a draft model's
        steps should have taken ``steps_s`` as measured, 0 without one. Each of its steps takes
        longer than that, and some time goes by before the first, whatever their number."""
        seconds /= self.slower(sequences)
        # the first time is no measure: code and memory are touched that were not before
        if steps_s:
            if self._drafted:
                self._drafting.observe(steps_s, seconds)
            self._drafted = True
            return
        most = 2 * self._making or self._measured.target.at(1) / 8
        self._making += (min(seconds, most) - self._making) * _NEWEST
