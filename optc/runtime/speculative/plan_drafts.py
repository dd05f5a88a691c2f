"""How many drafts are best for each request of a step, by what they cost and how often they hold.

A plain step of B sequences takes t(B) and gives B tokens. With m drafts in it, it takes
t(B + m) and, where a draft model makes them, d(b1) + d(b2) + … before: b1 requests have at least
one draft, b2 at least two. The j-th draft of a request with acceptance rate p brings p^j tokens.
Best is the largest number of tokens a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from optc.runtime.speculative.row_costs import RowCosts

#: Gains below this share are within the error of the estimates.
MARGIN = 0.02


class Costs(NamedTuple):
    """What a step costs by its rows, in the unit of the target's measured times.

    Attributes:
        target: The engine that verifies.
        draft: A draft model's; None where drafts cost nothing to make.
        draft_factor: What the draft model's measured times are multiplied by.
        row_extra: What each drafted row costs beyond the target's measured times.
    """

    target: RowCosts
    draft: RowCosts | None = None
    draft_factor: float = 1.0
    row_extra: float = 0.0

    def drafting(self, rows: int) -> float:
        """Time of a draft step of so many rows."""
        return self.draft.at(rows) * self.draft_factor if self.draft else 0.0

    def verifying(self, rows: int, sequences: int) -> float:
        """Time of a step of so many sequences and drafts together."""
        return self.target.at(rows) + self.row_extra * (rows - sequences)


class DraftPlan(NamedTuple):
    """Drafts of each request, and the expected gain in tokens a second as a share of those of
    plain decoding."""

    counts: list[int]
    gain: float


def plan_drafts(rates: Sequence[float], sequences: int, limit: int, costs: Costs) -> DraftPlan:
    """The best number of drafts for each request, at most ``limit``.

    Args:
        rates: Acceptance rates of those that may be given drafts.
        sequences: B, all sequences of the step.
        limit: Most drafts of one.
        costs: Of the engines.
    """
    none = DraftPlan([0] * len(rates), 0.0)
    if not _can_pay(rates, sequences, limit, costs):
        return none
    best = max(_by_gain(rates, sequences, limit, costs), _alike(rates, sequences, limit, costs))
    return DraftPlan(best[1], best[0] - 1) if best[0] > 1 + MARGIN else none


def _by_gain(
    rates: Sequence[float], sequences: int, limit: int, costs: Costs
) -> tuple[float, list[int]]:
    """The best speed, and its counts, of all that take the drafts with the largest gain."""
    # A request's j-th draft comes after its (j-1)-th.
    wins = sorted(
        (-(rate**depth), depth, index)
        for index, rate in enumerate(rates)
        for depth in range(1, limit + 1)
    )
    plain = costs.target.at(sequences)
    tokens, drafting = float(sequences), 0.0
    at_depth = [0] * (limit + 1)
    counts = [0] * len(rates)
    best, best_counts = 1.0, counts.copy()
    for rows, (negative, depth, index) in enumerate(wins, sequences + 1):
        tokens -= negative
        counts[index] = depth
        if costs.draft is not None:
            drafting -= costs.drafting(at_depth[depth])
            at_depth[depth] += 1
            drafting += costs.drafting(at_depth[depth])
        speed = tokens / sequences * plain / (costs.verifying(rows, sequences) + drafting)
        if speed > best:
            best, best_counts = speed, counts.copy()
    return best, best_counts


def _alike(
    rates: Sequence[float], sequences: int, limit: int, costs: Costs
) -> tuple[float, list[int]]:
    """The same of those that draft equally many for all: a draft model's steps cost little more
    for all requests than for one."""
    plain = costs.target.at(sequences)
    tokens = float(sequences)
    best, best_depth = 1.0, 0
    for depth in range(1, limit + 1):
        tokens += sum(rate**depth for rate in rates)
        rows = sequences + depth * len(rates)
        time = costs.verifying(rows, sequences) + depth * costs.drafting(len(rates))
        speed = tokens / sequences * plain / time
        if speed > best:
            best, best_depth = speed, depth
    return best, [best_depth] * len(rates)


def _can_pay(rates: Sequence[float], sequences: int, limit: int, costs: Costs) -> bool:
    """False where not even all drafts together, at the price of one, would pay: most steps in
    which nothing is drafted, at little cost."""
    rate = max(rates, default=0.0)
    most = len(rates) * sum(rate**depth for depth in range(1, limit + 1))
    time = costs.verifying(sequences + 1, sequences) + costs.drafting(1)
    return (1 + most / sequences) * costs.target.at(sequences) > (1 + MARGIN) * time
