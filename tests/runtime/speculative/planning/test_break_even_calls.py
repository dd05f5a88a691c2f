"""`BreakEven` call by call, with a planner that says what it is told to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from optc.runtime.speculative.planning.break_even import BreakEven, _rounded_down, making_time
from optc.runtime.speculative.planning.controller import Draftable, StepTimes
from optc.runtime.speculative.planning.ledger import AT_FIRST
from optc.runtime.speculative.planning.plan_drafts import Costs, DraftPlan
from optc.runtime.speculative.planning.row_costs import RowCosts

#: A step of one row takes 1, each further one an eighth; a draft step the same.
TARGET = RowCosts((1, 9), (1.0, 2.0))
COSTS = Costs(TARGET)
SHARE = 0.25


class Plans:
    """Gives every request ``drafts`` drafts; remembers what it was asked."""

    def __init__(self, drafts: int = 0, extra: float = 0.0) -> None:
        self.drafts, self.extra = drafts, extra
        self.asked: list[tuple[int, float]] = []
        self.learned: list[tuple[int, int, int]] = []
        self.forgotten: list[int] = []

    def plan(
        self, requests: Sequence[Draftable], sequences: int, costs: Costs, budget: float
    ) -> DraftPlan:
        self.asked.append((sequences, budget))
        return DraftPlan([self.drafts] * len(requests), 0.1, self.extra)

    def learn(self, request_id: int, drafted: int, accepted: int) -> None:
        self.learned.append((request_id, drafted, accepted))

    def forget(self, request_id: int) -> None:
        self.forgotten.append(request_id)


def seasoned(plans: Plans, costs: Costs = COSTS, balance: float = 2.0) -> BreakEven:
    """A controller that knows plain steps of one sequence, with so much in its ledger."""
    controller = BreakEven(costs, planner=plans, share=SHARE)
    for _ in range(3):
        assert controller.ready()
        controller.observe(StepTimes(1, 1, 1.0))
    assert balance_of(controller) == 2.0, "plain steps win and lose nothing"
    controller._ledger.settle(balance - 2.0)
    return controller


def balance_of(controller: BreakEven) -> float:
    return controller._ledger.balance


def rests(controller: BreakEven) -> int:
    """Steps until it may look again, those apart that are plain in any case."""
    resting = 0
    while not controller.ready():
        resting += bool(controller._steps % 64)
    return resting


def test_one_step_in_sixty_four_is_plain() -> None:
    controller = BreakEven(COSTS, planner=Plans())
    ready = [controller.ready() for _ in range(130)]
    assert [step for step, each in enumerate(ready, 1) if not each] == [64, 128]


def test_nothing_is_planned_before_plain_steps_are_known() -> None:
    plans = Plans(2)
    controller = BreakEven(COSTS, planner=plans)
    for _ in range(3):
        controller.ready()
        assert controller.counts([Draftable(0, 9)], 1) == [0]
        controller.observe(StepTimes(1, 1, 1.0))
    controller.ready()
    assert controller.counts([Draftable(0, 9)], 1) == [2]
    assert controller.counts([Draftable(0, 9)] * 2, 2) == [0, 0], (
        "of two sequences nothing is known"
    )
    assert controller.counts([], 1) == []
    assert len(plans.asked) == 1


def test_the_planner_gets_the_budget_in_plain_steps_of_so_many_sequences() -> None:
    plans = Plans(1)
    controller = seasoned(plans)
    for _ in range(3):
        controller.ready()
        controller.observe(StepTimes(9, 9, 2.0))
    controller.ready()
    controller.counts([Draftable(0, 0), Draftable(1, 200)], 1)
    controller.counts([Draftable(0, 200)], 9)
    assert plans.asked == [(1, 3.5), (9, 7.0)], "2, and 0.0075 of each of 200 steps"


def test_without_a_budget_it_rests_until_the_share_has_paid() -> None:
    plans = Plans(1)
    controller = seasoned(plans, balance=0.0)
    controller.ready()
    assert controller.counts([Draftable(0, 0)], 1) == [0]
    assert rests(controller) == 1
    controller._ledger.settle(-0.5)
    controller.counts([Draftable(0, 0)], 1)
    assert rests(controller) == 3
    assert plans.asked == []


def test_it_rests_for_sixty_four_steps_at_most() -> None:
    controller = BreakEven(COSTS, planner=Plans(), share=0.001)
    for _ in range(3):
        controller.ready()
        controller.observe(StepTimes(1, 1, 1.0))
    controller._ledger.settle(-100.0)
    controller.counts([Draftable(0, 0)], 1)
    assert rests(controller) == 64


def test_whoever_learns_something_looks_again() -> None:
    plans = Plans()
    controller = seasoned(plans, balance=-2.0)
    controller.counts([Draftable(0, 0)], 1)
    assert not controller.ready()
    controller.learn(7, 3, 2)
    assert controller.ready()
    controller.forget(7)
    assert plans.learned == [(7, 3, 2)]
    assert plans.forgotten == [7]


def test_every_step_pays_its_share_and_one_in_eight_of_those_at_rest_is_learned_from() -> None:
    controller = seasoned(Plans(), balance=-4.0)
    controller.counts([Draftable(0, 0)], 1)
    gained = []
    for _ in range(9):
        assert not controller.ready()
        before = balance_of(controller)
        controller.observe(StepTimes(1, 1, 1.0, accepted=2))
        gained.append(balance_of(controller) - before)
    # steps 4 to 12
    assert gained == [SHARE] * 4 + [2 + SHARE] + [SHARE] * 4


def draft_step(controller: BreakEven, step: StepTimes) -> float:
    """What a step with drafts wins, its share apart."""
    controller.ready()
    assert any(controller.counts([Draftable(0, 100)], 1))
    before = balance_of(controller)
    controller.observe(step)
    return balance_of(controller) - before - (SHARE if before < 1 else 0)


@pytest.mark.parametrize(
    ("step", "won"),
    [
        # two of three drafts hold; 4 rows took 0.5 more than one, making them 0.25
        (StepTimes(1, 4, 1.75, 0.25, 3, 2), 2 - 0.75),
        # half of the drafts are another source's
        (StepTimes(1, 5, 1.5, 0.0, 2, 1), 1 - 0.25),
        # a prompt's rows are in the step: each draft costs as much as a row does
        (StepTimes(1, 40, 9.0, 0.25, 2, 1, mixed=True), 1 - 0.25 - 2 / 8),
        # the machine did something else: no more than expected and a plain step
        (StepTimes(1, 4, 500.0, 0.0, 3, 0), -(0.5 + 1.0)),
        # another source's drafts cost this one nothing
        (StepTimes(1, 4, 1.75, 0.25, 0, 0), -0.25),
    ],
)
def test_what_a_step_wins_and_loses(step: StepTimes, won: float) -> None:
    controller = seasoned(Plans(3, extra=0.5), balance=3.0)
    assert draft_step(controller, step) == pytest.approx(won)


def test_a_step_for_which_nothing_was_planned_loses_no_more_than_a_plain_one() -> None:
    controller = seasoned(Plans())
    controller.ready()
    assert controller.counts([], 1) == []
    controller.observe(StepTimes(1, 1, 6.0, 5.0))
    assert balance_of(controller) == 1.0
    assert controller._live.now().making == 0.0, "nor is the time taken for that of drafts"


def test_what_was_planned_for_one_step_says_nothing_of_the_next() -> None:
    controller = seasoned(Plans(3, extra=0.5), balance=5.0)
    draft_step(controller, StepTimes(1, 4, 1.0, 0.0, 3, 0))
    before = balance_of(controller)
    controller.ready()
    controller.counts([], 1)
    controller.observe(StepTimes(1, 1, 6.0, 5.0))
    assert balance_of(controller) == before - 1.0


def test_losses_are_counted_in_steps_of_now() -> None:
    controller = BreakEven(COSTS, planner=Plans(3, extra=0.5), share=SHARE)
    for _ in range(3):
        controller.ready()
        controller.observe(StepTimes(1, 1, 2.0))
    lost = draft_step(controller, StepTimes(1, 4, 500.0, 0.0, 3, 0))
    assert lost == pytest.approx(-(2 * 0.5 + 2.0) / 2.0)
    assert draft_step(controller, StepTimes(1, 4, 3.0, 0.0, 3, 1)) == pytest.approx(1 - 0.5)


def test_accepted_drafts_count_by_the_sequences_of_the_step() -> None:
    controller = seasoned(Plans(1, extra=0.5))
    for _ in range(3):
        controller.ready()
        controller.observe(StepTimes(2, 2, 1.125))
    controller.ready()
    controller.counts([Draftable(0, 9), Draftable(1, 9)], 2)
    controller.observe(StepTimes(2, 4, 1.125, 0.0, 2, 2))
    assert balance_of(controller) == pytest.approx(3.0)


def idle(controller: BreakEven, steps: int, requests: Sequence[Draftable]) -> None:
    for _ in range(steps):
        controller.ready()
        assert not any(controller.counts(requests, 1))
        controller.observe(StepTimes(1, 1, 1.0))


REQUESTS = (Draftable(0, 100, 9), Draftable(1, 100, 2), Draftable(2, 100, 3))


def test_after_thirty_two_steps_without_drafts_the_cheapest_is_tried() -> None:
    controller = seasoned(Plans())
    idle(controller, 32, REQUESTS)
    controller.ready()
    assert controller.counts(REQUESTS, 1) == [0, 1, 0]
    # a probe that takes long costs the row that was expected and a plain step
    before = balance_of(controller)
    controller.observe(StepTimes(1, 2, 50.0, 0.0, 1, 0))
    assert balance_of(controller) - before == pytest.approx(-1.125)
    idle(controller, 32, REQUESTS)
    controller.ready()
    assert any(controller.counts(REQUESTS, 1))


@pytest.mark.parametrize(("balance", "tried"), [(0.34375, False), (0.375, True)])
def test_a_probe_must_be_affordable(balance: float, tried: bool) -> None:
    """A row of an eighth, and a draft step that reads two rows of an eighth each."""
    costs = Costs(TARGET, RowCosts((1,), (0.125,)))
    controller = seasoned(Plans(), costs)
    requests = [Draftable(0, 0, 9), Draftable(1, 0, 2)]
    idle(controller, 32, requests)
    controller._ledger.settle(balance - balance_of(controller))
    assert controller.counts(requests, 1) == [0, int(tried)]


def test_steps_at_rest_bring_a_probe_nearer() -> None:
    controller = seasoned(Plans(), balance=-3.0)
    controller.counts(REQUESTS, 1)
    resting = rests(controller)
    assert resting == 10, "what is lent, 0.75, is there; 2.25 are owed"
    controller._ledger.settle(4.5)
    idle(controller, 31 - resting, REQUESTS)
    controller.ready()
    assert any(controller.counts(REQUESTS, 1))


def test_whoever_has_won_tries_again_after_four_steps() -> None:
    controller = seasoned(Plans(), balance=AT_FIRST + 1)
    idle(controller, 4, REQUESTS)
    controller.ready()
    assert controller.counts(REQUESTS, 1) == [0, 1, 0]


def look(controller: BreakEven, drafting_s: float) -> None:
    """A look that finds nothing."""
    assert controller.ready()
    assert not any(controller.counts([Draftable(0, 100)], 1))
    controller.observe(StepTimes(1, 1, 1.0 + drafting_s, drafting_s))


def test_looking_in_vain_may_take_a_quarter_of_a_percent_of_the_time() -> None:
    controller = seasoned(Plans(), balance=0.5)
    look(controller, 0.125)  # a fifth of it is believed: 0.025 are ten times 0.0025
    assert rests(controller) == pytest.approx(10, abs=1)
    controller = seasoned(Plans(), balance=0.5)
    look(controller, 1000.0)
    assert rests(controller) == 64, "0.2, for it took no longer than a plain step"


def test_looking_costs_no_rest_while_the_ledger_is_full() -> None:
    controller = seasoned(Plans(), balance=3.0)
    look(controller, 0.125)
    assert controller.ready()


def test_what_drafts_have_won_pays_for_more_looks() -> None:
    """Winning 3 a step, of which 0.09 is believed after one, allows 0.025 of a step for looks."""
    plans = Plans(3, extra=0.5)
    controller = seasoned(plans)
    assert draft_step(controller, StepTimes(1, 4, 1.0, 0.0, 3, 3)) == pytest.approx(3.0)
    plans.drafts = 0
    controller._ledger.settle(0.5 - balance_of(controller))
    look(controller, 0.52)  # 0.104, of 0.0025 + 0.25 * (0.09 - 0.03 * 0.61)
    assert rests(controller) == 5


def test_the_time_of_looks_is_a_moving_mean() -> None:
    controller = seasoned(Plans(), balance=0.5)
    look(controller, 0.125)  # 0.025
    rests(controller)
    controller.counts([Draftable(0, 100)], 1)
    controller.observe(StepTimes(1, 1, 1.125, 0.125))  # 0.045
    assert rests(controller) == pytest.approx(18, abs=1)


def test_a_ledger_that_is_just_full_allows_the_next_look() -> None:
    controller = seasoned(Plans(), balance=1.125)
    look(controller, 0.125)
    assert balance_of(controller) == 1.0
    assert controller.ready()


def test_making_drafts_takes_a_step_for_each_depth() -> None:
    requests = [Draftable(0, 9, 3), Draftable(1, 9, 50), Draftable(2, 9, 5)]
    costs = Costs(RowCosts((1,), (1.0,)), TARGET)
    # eight rows at first, then one
    assert making_time(costs, requests, [2, 0, 1]) == 1.875 + 1.0
    assert making_time(costs, requests, [3, 0, 3]) == 1.875 + 1.125 + 1.125
    assert making_time(COSTS, requests, [2, 0, 1]) == 0.0


def test_slow_draft_steps_are_learned_from_in_units_of_those_measured() -> None:
    costs = Costs(TARGET, RowCosts((1, 9), (0.125, 0.25)))
    controller = seasoned(Plans(2, extra=0.5), costs)
    for _ in range(40):  # eight rows and one take 0.359375 as measured, and now 0.6
        controller.ready()
        assert controller.counts([Draftable(0, 100, 8)], 1) == [2]
        controller.learn(0, 2, 2)
        controller.observe(StepTimes(1, 3, 1.85, 0.6, 2, 2))
    now = controller._live.now()
    assert now.draft_factor + now.making == pytest.approx(1.0 + 0.24, abs=0.02)


def test_drafts_that_were_not_made_took_no_time() -> None:
    """Four are asked for, of which two are made: the time is that of two."""
    costs = Costs(TARGET, RowCosts((1, 9), (0.125, 0.25)))
    controller = seasoned(Plans(4, extra=0.5), costs)
    for _ in range(40):
        controller.ready()
        assert controller.counts([Draftable(0, 100, 8)], 1) == [4]
        controller.learn(0, 2, 2)
        controller.observe(StepTimes(1, 3, 1.85, 0.6, 2, 2))
    now = controller._live.now()
    assert now.draft_factor + now.making == pytest.approx(1.0 + 0.24, abs=0.02)


@pytest.mark.parametrize(
    ("budget", "rounded"),
    [(1.0, 1.0), (1.04, 1.0), (1.07, 1.0625), (3.99, 3.875), (0.75, 0.75), (0.0, 0.0)],
)
def test_budgets_are_rounded_down_so_that_plans_repeat(budget: float, rounded: float) -> None:
    assert _rounded_down(budget) == rounded
