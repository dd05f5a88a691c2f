"""The best number of drafts for each request of a step, by what they cost and how often they hold.

A plain step of B sequences takes t(B) and gives B tokens. With m drafts in it, it takes
t(B + m) and, where a draft model makes them, d(b1) + d(b2) + … before: b1 requests have at least
one draft, b2 at least two. The j-th draft of a request brings p1 · p2 · … · pj tokens: each pi is
the chance that the i-th draft holds if those before it do. Best is the largest number of tokens a
second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from optc.runtime.speculative.planning.row_costs import RowCosts

#: Gains below this share are within the error of the estimates.
MARGIN = 0.02
#: Rates that differ by less are planned alike: most plans were made before.
_RATE_STEPS = 128
#: Drafts that are accepted more rarely win less than any row costs.
_UNLIKELY = 0.01
#: Plans of an engine that are kept.
_KEPT = 1024


class Costs(NamedTuple):
    """The costs of a step by its rows, in the unit of the target's measured times.

    Attributes:
        target: The engine that verifies.
        draft: A draft model's; None where there is none.
        draft_factor: What the draft model's measured times are multiplied by.
        row_extra: What each drafted row costs beyond the target's measured times.
        making: What a step with drafts takes besides, however many: making them without a draft
            model, and whatever it slows.
        reading: A draft model's where only the last row has logits; None is as ``draft``.
    """

    target: RowCosts
    draft: RowCosts | None = None
    draft_factor: float = 1.0
    row_extra: float = 0.0
    making: float = 0.0
    reading: RowCosts | None = None

    def drafting(self, rows: int) -> float:
        """Time of a draft step of so many rows."""
        return self.draft.at(rows) * self.draft_factor if self.draft else 0.0

    def catching_up(self, rows: int, sequences: int = 1) -> float:
        """Time of a draft step of so many rows, one of each sequence with logits."""
        if self.draft is None or self.reading is None:
            return self.drafting(rows)
        heads = self.draft.at(sequences) - self.reading.at(sequences)
        return (self.reading.at(rows) + max(heads, 0.0)) * self.draft_factor

    def verifying(self, rows: int, sequences: int) -> float:
        """Time of a step of so many sequences and drafts together, no less than without drafts."""
        drafted = self.target.at(rows) + self.row_extra * (rows - sequences)
        return max(drafted, self.target.at(sequences))


class DraftPlan(NamedTuple):
    """The drafts to make.

    Attributes:
        counts: Drafts of each request.
        gain: Expected, in tokens a second, as a share of those of plain decoding.
        extra: Time that the step takes beyond a plain one.
    """

    counts: list[int]
    gain: float = 0.0
    extra: float = 0.0


class DraftPlans:
    """The best plans for one engine. What it planned lately is not computed again, and is forgotten
    with it: a program that opens and closes engines keeps none of their plans."""

    def __init__(self) -> None:
        self._known = lru_cache(maxsize=_KEPT)(_plan)

    def best(
        self,
        rates: Sequence[Sequence[float]],
        sequences: int,
        costs: Costs,
        budget: float = math.inf,
    ) -> DraftPlan:
        """The best number of drafts for each request.

        Args:
            rates: Of each request that may be given drafts, and of each draft that it may be given
                at most: the chance that it holds if those before it do, rounded to a 128th.
            sequences: B, all sequences of the step.
            costs: Of the engines.
            budget: Most time that the step may take beyond a plain one.
        """
        rounded = tuple(tuple([round(rate * _RATE_STEPS) for rate in mine]) for mine in rates)
        plan = self._known(rounded, sequences, costs, budget)
        return plan._replace(counts=plan.counts.copy())


def _plan(
    rates: tuple[tuple[int, ...], ...], sequences: int, costs: Costs, budget: float
) -> DraftPlan:
    """The best of all plans; rates in 128ths."""
    chances = [_chances(mine) for mine in rates]
    if not any(chances):
        return DraftPlan([0] * len(rates))
    verifying = costs.target.upto(sequences + max(map(len, chances)) * len(chances))
    plain = verifying[sequences]
    bounds = _Bounds(sequences, costs, verifying, plain + budget)
    gain, counts, time = max(_by_gain(chances, bounds), _alike(chances, bounds))
    gain = gain * plain - 1
    if gain <= MARGIN:
        return DraftPlan([0] * len(rates))
    return DraftPlan(counts, gain, time - plain)


def _chances(rates: tuple[int, ...]) -> list[float]:
    """That one draft is accepted, two are, and so on, as far as it is likely enough to matter."""
    chances: list[float] = []
    chance = 1.0
    for rate in rates:
        chance *= rate / _RATE_STEPS
        if chance < _UNLIKELY:
            break
        chances.append(chance)
    return chances


class _Bounds(NamedTuple):
    """The common part of all choices of drafts.

    Attributes:
        sequences: B.
        costs: Of the engines.
        verifying: Times of steps by their rows, as measured.
        most: Longest time that a step may take.
    """

    sequences: int
    costs: Costs
    verifying: list[float]
    most: float

    def time(self, drafts: int) -> float:
        """Of a step with so many drafts, a draft model's time apart: no less than of a plain one,
        whatever ``costs`` say of rows."""
        costs, plain = self.costs, self.verifying[self.sequences]
        rows = self.verifying[self.sequences + drafts] + costs.row_extra * drafts
        return max(rows + costs.making, plain)


_Choice = tuple[float, list[int], float]  # share of a step's tokens a second, counts, time


def _by_gain(chances: list[list[float]], bounds: _Bounds) -> _Choice:
    """The best of: the likeliest draft, the two likeliest, and so on."""
    # A request's next draft comes after the one before: where chances are equal, by depth.
    wins = sorted(
        (-chance, depth, index)
        for index, mine in enumerate(chances)
        for depth, chance in enumerate(mine)
    )
    draft, factor = bounds.costs.draft, bounds.costs.draft_factor
    steps = draft.upto(len(chances)) if draft else ()
    at_depth = [0] * max(map(len, chances))
    tokens, drafting = float(bounds.sequences), 0.0
    best, best_drafts, best_time = 0.0, 0, 0.0
    for drafts, (negative, depth, _) in enumerate(wins, 1):
        tokens -= negative
        if steps:  # a draft step has a row for each request that is drafted for so deep
            at_depth[depth] += 1
            drafting += (steps[at_depth[depth]] - steps[at_depth[depth] - 1]) * factor
        time = bounds.time(drafts) + drafting
        if time > bounds.most:
            break
        if tokens > best * time:
            best, best_drafts, best_time = tokens / time, drafts, time
    counts = [0] * len(chances)
    for _, _, index in wins[:best_drafts]:
        counts[index] += 1
    return best / bounds.sequences, counts, best_time


def _alike(chances: list[list[float]], bounds: _Bounds) -> _Choice:
    """The best of those that draft equally many for all: a draft model's steps cost little more
    for all requests than for one."""
    requests = len(chances)
    step = bounds.costs.drafting(requests)
    tokens = float(bounds.sequences)
    best, best_depth, best_time = 0.0, 0, 0.0
    for depth in range(1, max(map(len, chances)) + 1):
        tokens += sum(mine[depth - 1] for mine in chances if len(mine) >= depth)
        time = bounds.time(depth * requests) + depth * step
        if time > bounds.most:
            break
        if tokens > best * time:
            best, best_depth, best_time = tokens / time, depth, time
    return best / bounds.sequences, [best_depth] * requests, best_time
