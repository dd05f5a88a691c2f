"""What the planner of chains leaves of a plan that draft models would have to read too much for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from optc.runtime.speculative.planning import chain_planner
from optc.runtime.speculative.planning.chain_planner import UP_TO_DATE, ChainPlanner
from optc.runtime.speculative.planning.controller import Draftable
from optc.runtime.speculative.planning.plan_drafts import Costs, DraftPlan, DraftPlans
from optc.runtime.speculative.planning.row_costs import RowCosts

#: A step of B rows takes 1; a draft step a thousandth a row.
TARGET = RowCosts((1, 101), (1.0, 1.0 + 1e-9))
COSTS = Costs(TARGET, RowCosts((1, 1001), (0.001, 1.001)))


class Plans:
    """Stands for `DraftPlans`: gives each request two drafts, with a gain and a time."""

    def __init__(self, gain: float = 0.5, extra: float = 0.1) -> None:
        self.gain, self.extra = gain, extra
        self.budgets: list[float] = []

    def best(
        self, rates: Sequence[Sequence[float]], sequences: int, costs: Costs, budget: float
    ) -> DraftPlan:
        self.budgets.append(budget)
        return DraftPlan([2] * len(rates), self.gain, self.extra)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Plans:
    made = Plans()
    monkeypatch.setattr(chain_planner, "DraftPlans", lambda: made)
    return made


def experienced(verifications: int = 4) -> ChainPlanner:
    planner = ChainPlanner(8)
    for _ in range(verifications):
        planner.learn(99, 2, 2)
    return planner


def test_without_a_draft_model_the_plan_is_the_best_one() -> None:
    planner = ChainPlanner(3)
    for _ in range(9):
        planner.learn(1, 4, 4)
    requests = [Draftable(1, 50, 900), Draftable(2, 50, 900)]
    costs = Costs(RowCosts((1, 101), (1.0, 2.0)))
    plan = planner.plan(requests, 2, costs, 0.05)
    assert plan == DraftPlans().best(planner._acceptance.rates(requests, 3), 2, costs, 0.05)
    assert max(plan.counts) == 3, "the limit"
    assert sum(plan.counts) < 6, "the budget"


def test_what_is_learned_is_forgotten_with_the_request() -> None:
    planner = experienced()
    planner.learn(1, 4, 0)
    own = planner._acceptance.rates([Draftable(1, 9)], 1)
    planner.forget(1)
    assert planner._acceptance.rates([Draftable(1, 9)], 1) > own


def test_a_draft_model_that_is_up_to_date_needs_nothing_more(plans: Plans) -> None:
    requests = [Draftable(index, 1, UP_TO_DATE) for index in range(3)]
    plan = ChainPlanner(8).plan(requests, 3, COSTS, 1.0)
    assert plan == DraftPlan([2, 2, 2], 0.5, pytest.approx(0.1))
    assert plans.budgets == [1.0]
    assert UP_TO_DATE == 16


def test_what_must_be_read_first_comes_out_of_the_budget(plans: Plans) -> None:
    requests = [Draftable(0, 9999, 300), Draftable(1, 9999, 200)]
    experienced().plan(requests, 2, COSTS, 1.0)
    assert plans.budgets == [pytest.approx(0.8)]
    exact = Costs(RowCosts((1,), (1.0,)), RowCosts((1,), (1 / 64,)))
    assert experienced().plan([Draftable(0, 9999, 32)], 1, exact, 0.5) == DraftPlan([0])
    assert plans.budgets == [pytest.approx(0.8)], "nothing was planned"


def test_reading_pays_if_it_wins_twice_as_much_until_the_end(plans: Plans) -> None:
    # A gain of a half saves a third of a step of 1 for each token: 300 rows are worth 1.8 of them.
    counts = [
        experienced().plan([Draftable(0, room, 300)], 1, COSTS, 9.0).counts for room in (1, 2, 3)
    ]
    assert counts == [[0], [2], [2]]
    plans.gain = 0.25
    assert experienced().plan([Draftable(0, 3, 301)], 1, COSTS, 9.0).counts == [0]
    assert experienced().plan([Draftable(0, 3, 299)], 1, COSTS, 9.0).counts == [2]
    # a token of one of two sequences saves half as much
    requests = [Draftable(0, 3, 299), Draftable(1, 9, 1)]
    assert experienced().plan(requests, 2, COSTS, 9.0).counts == [0, 2]


def test_reading_that_wins_just_twice_as_much_is_done(plans: Plans) -> None:
    plans.gain = 1.0  # a token saves half a step
    costs = Costs(RowCosts((1,), (1.0,)), RowCosts((1,), (1 / 128,)))
    assert experienced().plan([Draftable(0, 1, 32)], 1, costs, 9.0).counts == [2]
    assert experienced().plan([Draftable(0, 1, 33)], 1, costs, 9.0).counts == [0]


def test_the_time_of_reading_is_part_of_the_plans(plans: Plans) -> None:
    plan = experienced().plan([Draftable(0, 9999, 300), Draftable(1, 9999, 200)], 2, COSTS, 1.0)
    assert plan.counts == [2, 2]
    assert plan.extra == pytest.approx(0.1 + 0.3 + 0.2)
    plan = experienced().plan([Draftable(0, 9999, 300), Draftable(1, 9999, 200)], 2, COSTS, 0.55)
    assert plan.counts == [2, 0], "0.15 is left for the second"
    assert plan.extra == pytest.approx(0.1 + 0.3)


def test_reading_that_takes_just_what_is_left_is_done(
    plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans.extra = 0.5
    costs = Costs(RowCosts((1,), (1.0,)), RowCosts((1,), (1 / 64,)))
    assert experienced().plan([Draftable(0, 9999, 32)], 1, costs, 1.0).counts == [2]
    assert experienced().plan([Draftable(0, 9999, 33)], 1, costs, 1.0).counts == [0]


@pytest.mark.parametrize(("verifications", "counts"), [(3, [2, 0, 0]), (4, [2, 2, 2])])
def test_one_request_is_read_for_until_enough_is_known(
    plans: Plans, verifications: int, counts: list[int]
) -> None:
    requests = [Draftable(index, 9999, 100) for index in range(3)]
    assert experienced(verifications).plan(requests, 3, COSTS, 9.0).counts == counts


def test_the_first_that_must_be_read_is_tried_although_another_is_up_to_date(plans: Plans) -> None:
    requests = [Draftable(0, 9999, 3), Draftable(1, 9999, 100), Draftable(2, 9999, 100)]
    assert ChainPlanner(8).plan(requests, 3, COSTS, 9.0).counts == [2, 2, 0]
    plan = ChainPlanner(8).plan([Draftable(0, 0, 100), *requests[1:]], 3, COSTS, 9.0)
    assert plan.counts == [0, 0, 0], "the first was not worth it, and was the only one to be tried"


def test_what_reading_takes_is_that_of_steps_with_logits_of_the_last_row(plans: Plans) -> None:
    reading = RowCosts((1, 1001), (0.001, 0.101))
    costs = COSTS._replace(reading=reading)
    requests = [Draftable(1, 1000, 401)]
    assert experienced().plan(requests, 1, COSTS, 0.3).counts == [0]
    assert experienced().plan(requests, 1, costs, 0.3).counts == [2]
    assert plans.budgets == [pytest.approx(0.3 - 0.041)]


def test_a_step_that_catches_up_has_logits_of_each_sequence() -> None:
    draft, reading = RowCosts((1, 9), (1.0, 9.0)), RowCosts((1, 9), (1.0, 3.0))
    costs = Costs(TARGET, draft, draft_factor=2.0, reading=reading)
    assert costs.catching_up(9) == 2 * 3.0
    assert costs.catching_up(9, 5) == 2 * (3.0 + 5.0 - 2.0)
    assert costs._replace(reading=None).catching_up(9, 5) == 2 * 9.0
    assert Costs(TARGET, reading=reading).catching_up(9) == 0.0
    noisy = costs._replace(reading=RowCosts((1,), (1.5,)))
    assert noisy.catching_up(1) == 2 * 1.5, "more logits never take less"
