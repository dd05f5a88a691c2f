"""`BreakEven`: as many drafts as pay, by measured costs and live acceptance."""

from __future__ import annotations

import math
from collections.abc import Sequence

from optc.runtime.speculative.kinds import MAX_DRAFTED
from optc.runtime.speculative.planning.chain_planner import ChainPlanner, Planner
from optc.runtime.speculative.planning.controller import Draftable, StepTimes
from optc.runtime.speculative.planning.ledger import AT_FIRST, MOST_OF_SHARE, SHARE, Ledger
from optc.runtime.speculative.planning.live_costs import LiveCosts
from optc.runtime.speculative.planning.plan_drafts import Costs

#: One step in so many is plain, to know what those take now.
_PLAIN_EVERY = 64
#: Of steps in which nobody looked for drafts, one in so many is learned from.
_LEARN_EVERY = 8
#: After so many steps without drafts one is tried, as soon as the ledger allows: sooner where it
#: has more than it was given, since drafts have won that.
_PROBE_EVERY, _PROBE_SOON = 32, 4
#: Looking for what pays may take this share of the time, and of what drafts win a share more.
_LOOKING, _LOOKING_OF_WON = 0.0025, 0.25
#: Older observations lose this fraction of their weight with each new one.
_FORGET = 0.03
#: Longest time without a look, in steps.
_MOST_REST = 64


class BreakEven:
    """Drafts what pays, and loses no more than its `Ledger` allows (a `Controller`).

    The planner says what should pay; a step may take no longer than the ledger's budget if all of
    its drafts were wrong. Where nothing pays nothing is drafted, but for a probe of one request
    now and then. All time that drafts take is charged, that of looking in vain included: where
    that is a large part of a step, there are steps without.

    Args:
        costs: Of the engines, measured on this machine.
        limit: Most drafts of a request in a step.
        planner: Chooses the drafts; None is `ChainPlanner`.
        share: Of all time that may be lost.
    """

    def __init__(
        self,
        costs: Costs,
        limit: int = MAX_DRAFTED,
        *,
        planner: Planner | None = None,
        share: float = SHARE,
    ) -> None:
        self._costs = costs
        self._live = LiveCosts(costs)
        self._planner = planner or ChainPlanner(limit)
        self._ledger = Ledger(share)
        self._steps = self._idle = self._rest = 0
        self._looked = False
        self._look_s = self._won = 0.0
        self._extra = 0.0  # of the step that is planned, in units of the costs
        self._asked: Sequence[Draftable] = ()  # in the step that is planned: who is drafted for
        self._made: dict[int, int] = {}  # drafts by request, of those that were verified

    def ready(self) -> bool:
        """False in steps that are plain in any case."""
        self._steps += 1
        self._looked = False
        self._extra = 0.0
        self._asked = ()
        self._made.clear()
        if self._steps % _PLAIN_EVERY == 0:
            return False
        if self._rest:
            self._rest -= 1
            self._idle += 1
            return False
        self._looked = True
        return True

    def counts(self, requests: Sequence[Draftable], sequences: int) -> list[int]:
        """The numbers of drafts that pay; now and then one draft where nothing does."""
        counts = [0] * len(requests)
        if requests and self._live.knows(sequences):
            budget = self._ledger.budget(max(request.room for request in requests))
            if budget > 0:
                counts = self._within(budget, requests, sequences)
            else:
                self._rest = min(_MOST_REST, self._ledger.wait(-budget))
        self._idle = 0 if any(counts) else self._idle + 1
        return counts

    def learn(self, request_id: int, drafted: int, accepted: int) -> None:
        """Learn how often drafts hold."""
        self._planner.learn(request_id, drafted, accepted)
        self._made[request_id] = drafted
        self._rest = 0

    def observe(self, step: StepTimes) -> None:
        """Learn what steps take now, and settle what the drafts of this one won."""
        self._ledger.passed()
        if not self._looked and self._steps % _LEARN_EVERY:
            return  # plain, and one of many
        if not step.mixed:
            self._observe_times(step)
        plain_s = self._live.plain_s(step.sequences)
        won = step.accepted / step.sequences - self._lost_s(step, plain_s) / plain_s
        self._ledger.settle(won)
        self._won += (won - self._won) * _FORGET
        if self._looked and not step.drafted:
            self._look_s += (min(step.drafting_s, plain_s) - self._look_s) * 0.2
            if self._ledger.balance < MOST_OF_SHARE:  # beyond it what was won pays
                allowed_s = (_LOOKING + _LOOKING_OF_WON * max(0.0, self._won)) * plain_s
                self._rest = max(self._rest, min(_MOST_REST, int(self._look_s / allowed_s)))

    def forget(self, request_id: int) -> None:
        """Drop the request's own acceptance."""
        self._planner.forget(request_id)

    def _within(self, budget: float, requests: Sequence[Draftable], sequences: int) -> list[int]:
        """The numbers of drafts that pay and cost at most ``budget`` plain steps."""
        costs = self._live.now()
        most = _rounded_down(budget) * costs.target.at(sequences)
        counts, _, self._extra = self._planner.plan(requests, sequences, costs, most)
        if not any(counts) and self._idle >= self._patience:
            counts = self._probe(requests, sequences, most)
        self._asked = [one for one, count in zip(requests, counts, strict=True) if count]
        return counts

    @property
    def _patience(self) -> int:
        """Steps without drafts until one is tried."""
        return _PROBE_SOON if self._ledger.balance > AT_FIRST else _PROBE_EVERY

    def _probe(self, requests: Sequence[Draftable], sequences: int, most: float) -> list[int]:
        """One draft for the request that costs least, if it costs no more than ``most`` by what was
        measured at first: what was seen since may be wrong, and only drafts correct it."""
        costs = self._costs
        counts = [0] * len(requests)
        index = min(range(len(requests)), key=lambda i: requests[i].catch_up)
        extra = costs.verifying(sequences + 1, sequences) - costs.target.at(sequences)
        extra += costs.making + costs.catching_up(requests[index].catch_up)
        if extra <= most:
            counts[index] = 1
            self._extra = extra
        return counts

    def _observe_times(self, step: StepTimes) -> None:
        verifying_s = step.seconds - step.drafting_s
        if step.rows == step.sequences:
            self._live.observe_plain(step.sequences, verifying_s)
        elif step.drafted:
            self._live.observe_drafts(step.sequences, step.rows, verifying_s)
        if self._asked:
            # a draft model that was not sure of more made fewer drafts than were planned
            made = [self._made.get(one.id, 1) for one in self._asked]
            steps_s = making_time(self._costs, self._asked, made)
            self._live.observe_making(step.sequences, step.drafting_s, steps_s)

    def _lost_s(self, step: StepTimes, plain_s: float) -> float:
        """Seconds that looking, drafting and verifying took. A step during which the machine did
        something else counts for no more than a plain step above what was expected."""
        lost_s = step.drafting_s
        if step.drafted and step.mixed:
            lost_s += step.drafted * self._live.row_s(step.sequences)
        elif step.drafted:
            share = step.drafted / (step.rows - step.sequences)
            lost_s += share * (step.seconds - step.drafting_s - plain_s)
        return min(lost_s, self._extra * self._live.slower(step.sequences) + plain_s)


def making_time(costs: Costs, requests: Sequence[Draftable], counts: Sequence[int]) -> float:
    """Measured time of a draft model's steps for ``counts`` drafts; 0 without one."""
    if costs.draft is None:
        return 0.0
    first = [r.catch_up for r, count in zip(requests, counts, strict=True) if count]
    measured = costs._replace(draft_factor=1.0)
    return measured.catching_up(sum(first), len(first)) + sum(
        costs.draft.at(sum(count >= depth for count in counts))
        for depth in range(2, max(counts) + 1)
    )


def _rounded_down(budget: float) -> float:
    """To a 32nd of the power of two above it: plans for the same budget are kept."""
    part, power = math.frexp(budget)
    return math.ldexp(math.floor(part * 32) / 32, power)
