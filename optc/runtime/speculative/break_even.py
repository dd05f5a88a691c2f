"""`BreakEven`: as many drafts as pay, by measured costs and live acceptance."""

from __future__ import annotations

from collections.abc import Sequence

from optc.runtime.speculative.controller import Drafted, StepTimes
from optc.runtime.speculative.ledger import Ledger
from optc.runtime.speculative.plan_drafts import Costs, DraftPlan, plan_drafts
from optc.runtime.speculative.rate import Rate, Ratio

#: Most drafts of a request in a step.
MAX_DRAFTED = 16
#: One step in so many is plain, to know what those take now.
_PLAIN_EVERY = 64
#: Where nothing paid, it is asked again after so many steps, or when something is learned: planning
#: for many requests takes a part of a millisecond.
_REPLAN_EVERY = 8
#: After so many steps without drafts one is tried, as soon as the ledger allows.
_PROBE_EVERY = 32
#: A draft model that lacks more rows of a request than this must first invest in it.
_UP_TO_DATE = 16
#: Older observations lose this fraction of their weight with each new one.
_FORGET = 0.05
#: Verifications until which one request at a time is invested in.
_EVIDENCE = 4


class BreakEven:
    """Drafts what pays, and loses no more than its `Ledger` allows (a `Controller`).

    A request begins with the acceptance of those before it. Where nothing pays nothing is drafted,
    but for a probe of one request now and then, when enough time has been saved up for it. What a
    draft model must read before it can draft at all is an investment: it is made if what it is
    expected to win until the end of the request is twice as much.

    Args:
        costs: Of the engines, measured on this machine.
        limit: Most drafts of a request in a step.
    """

    def __init__(self, costs: Costs, limit: int = MAX_DRAFTED) -> None:
        self._costs = costs
        self._limit = limit
        self._ledger = Ledger()
        self._all = Rate()
        self._rates: dict[int, Rate] = {}
        self._plain, self._drafting = Ratio(), Ratio()  # seconds of now to those measured
        self._row_extra_s = 0.0
        self._rows_seen = 0
        self._steps = self._idle = 0
        self._drafting_s = self._invested_s = 0.0  # expected of the step that is being planned

    def counts(self, requests: Sequence[Drafted], sequences: int) -> list[int]:
        """What pays; now and then one draft where nothing does."""
        self._drafting_s = self._invested_s = 0.0
        self._steps += 1
        counts = [0] * len(requests)
        if self._steps % _PLAIN_EVERY == 0 or not self._plain.count:
            return counts
        if not self._ledger.in_debt and self._idle % _REPLAN_EVERY == 0:
            rates = [self._rates.get(request.id, self._all).value for request in requests]
            plan = plan_drafts(rates, sequences, self._limit, self._costs_now())
            counts = self._worth_it(requests, plan, sequences)
        if any(counts):
            self._idle = 0
        else:
            self._idle += 1
            if self._idle >= _PROBE_EVERY:
                counts = self._probe(requests, sequences)
        self._expect(requests, counts)
        return counts

    def learn(self, request_id: int, drafted: int, accepted: int) -> None:
        """Learn how often drafts hold, for this request and for those to come."""
        if request_id not in self._rates:
            self._rates[request_id] = Rate(self._all.value)
        for rate in (self._rates[request_id], self._all):
            rate.observe(drafted, accepted)
        self._idle = 0

    def observe(self, step: StepTimes) -> None:
        """Learn what steps take now, and settle what the drafts of this one won."""
        measured = self._costs.target.at(step.sequences)
        if step.rows == step.sequences and step.drafting_s < 0.01 * step.seconds:
            self._plain.observe(step.seconds / measured)
        plain_s = self._plain.value * measured
        self._ledger.passed(step.seconds / plain_s)
        verifying_s = step.seconds - step.drafting_s
        if self._drafting_s:
            self._drafting.observe(step.drafting_s / self._drafting_s)
        if not step.drafted:
            return
        expected = self._plain.value * self._costs.target.at(step.rows)
        extra = (verifying_s - expected) / (step.rows - step.sequences)
        most = plain_s / step.sequences  # a row never costs more than a step of its own
        self._rows_seen += 1
        weight = max(_FORGET, 1 / self._rows_seen)
        self._row_extra_s += (min(max(extra, 0.0), most) - self._row_extra_s) * weight
        share = step.drafted / (step.rows - step.sequences)
        invested_s = self._invested_s * self._drafting.value
        lost_s = share * (verifying_s - plain_s) + max(0.0, step.drafting_s - invested_s)
        self._ledger.settle(step.accepted / step.sequences - lost_s / plain_s)

    def forget(self, request_id: int) -> None:
        """Drop the request's own acceptance."""
        self._rates.pop(request_id, None)

    def _costs_now(self) -> Costs:
        """Costs as they are now, in units of the target's measured times."""
        return self._costs._replace(
            draft_factor=self._drafting.value / self._plain.value,
            row_extra=self._row_extra_s / self._plain.value,
        )

    def _worth_it(self, requests: Sequence[Drafted], plan: DraftPlan, sequences: int) -> list[int]:
        """The plan's counts without those for which a draft model would have to read too much."""
        plain = self._costs.target.at(sequences)
        first = True
        counts = plan.counts.copy()
        for index, request in enumerate(requests):
            if not counts[index] or request.catch_up <= _UP_TO_DATE:
                continue
            saved = request.room * plain * plan.gain / (1 + plan.gain)
            known = first or self._all.verifications >= _EVIDENCE
            if not known or 2 * self._costs_now().drafting(request.catch_up) > saved:
                counts[index] = 0
            first = False
        return counts

    def _probe(self, requests: Sequence[Drafted], sequences: int) -> list[int]:
        """One draft for the request that costs least, if the ledger has enough for it."""
        counts = [0] * len(requests)
        if not requests:
            return counts
        index = min(range(len(requests)), key=lambda i: requests[i].catch_up)
        costs, plain = self._costs_now(), self._costs.target.at(sequences)
        reading = costs.drafting(requests[index].catch_up) / plain
        if reading + costs.verifying(sequences + 1, sequences) / plain - 1 > self._ledger.balance:
            return counts
        self._idle = 0
        counts[index] = 1
        return counts

    def _expect(self, requests: Sequence[Drafted], counts: list[int]) -> None:
        """Remember what the drafts of this step should take, and what of it is invested."""
        if self._costs.draft is None or not any(counts):
            return
        first = 0
        for request, count in zip(requests, counts, strict=True):
            if count:
                first += request.catch_up
                if request.catch_up > _UP_TO_DATE and count > 1:
                    self._invested_s += self._costs.draft.at(request.catch_up)
        self._drafting_s = self._costs.draft.at(first) + sum(
            self._costs.draft.at(sum(count >= depth for count in counts))
            for depth in range(2, max(counts) + 1)
        )
