"""`Planner`, what chooses drafts within a budget, and the one of drafts in a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from optc.runtime.speculative.planning.acceptance import Acceptance
from optc.runtime.speculative.planning.controller import Draftable
from optc.runtime.speculative.planning.plan_drafts import Costs, DraftPlan, DraftPlans

#: A draft model that lacks more rows of a request than this must first invest in it.
UP_TO_DATE = 16
#: Verifications until which one request at a time is invested in.
_EVIDENCE = 4


class Planner(Protocol):
    """Chooses how many drafts pay, from what it knows of acceptance."""

    def plan(
        self, requests: Sequence[Draftable], sequences: int, costs: Costs, budget: float
    ) -> DraftPlan:
        """Drafts of each of the requests in a step of ``sequences`` sequences, which takes at most
        ``budget`` longer than a plain one, in the unit of ``costs``."""
        ...

    def learn(self, request_id: int, drafted: int, accepted: int) -> None:
        """Take note of a verification of ``drafted`` drafts in a row."""
        ...

    def forget(self, request_id: int) -> None:
        """Drop what is known of a request that ended."""
        ...


class ChainPlanner:
    """As many drafts in a row as pay (a `Planner`).

    What a draft model must read before it can draft at all is an investment: it is made if what it
    is expected to win until the end of the request is twice as much.

    Args:
        limit: Most drafts of a request in a step.
        acceptance: How often drafts hold; None is an `Acceptance`.
    """

    def __init__(self, limit: int, acceptance: Acceptance | None = None) -> None:
        self._limit = limit
        self._acceptance = acceptance or Acceptance()
        self._plans = DraftPlans()

    def plan(
        self, requests: Sequence[Draftable], sequences: int, costs: Costs, budget: float
    ) -> DraftPlan:
        """The drafts that pay (`Planner.plan`)."""
        rates = self._acceptance.rates(requests, self._limit)
        if costs.draft is None:
            return self._plans.best(rates, sequences, costs, budget)
        least = min(request.catch_up for request in requests)
        reading = costs.catching_up(least) if least > UP_TO_DATE else 0.0
        if reading >= budget:
            return DraftPlan([0] * len(requests))
        plan = self._plans.best(rates, sequences, costs, budget - reading)
        return self._worth_it(requests, sequences, costs, budget, plan)

    def learn(self, request_id: int, drafted: int, accepted: int) -> None:
        """Learn how often drafts hold."""
        self._acceptance.learn(request_id, drafted, accepted)

    def forget(self, request_id: int) -> None:
        """Drop the request's own acceptance."""
        self._acceptance.forget(request_id)

    def _worth_it(
        self,
        requests: Sequence[Draftable],
        sequences: int,
        costs: Costs,
        budget: float,
        plan: DraftPlan,
    ) -> DraftPlan:
        """The plan without those for which a draft model would have to read too much."""
        counts = plan.counts.copy()
        saved = plan.gain / (1 + plan.gain) * costs.target.at(sequences) / sequences
        left = budget - plan.extra
        first = True
        for index, request in enumerate(requests):
            if not counts[index] or request.catch_up <= UP_TO_DATE:
                continue
            reading = costs.catching_up(request.catch_up)
            known = first or self._acceptance.verifications >= _EVIDENCE
            if known and reading <= left and 2 * reading <= request.room * saved:
                left -= reading
            else:
                counts[index] = 0
            first = False
        return plan._replace(counts=counts, extra=budget - left)
