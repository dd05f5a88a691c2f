"""The best number of drafts, against trying all."""

from __future__ import annotations

import gc
import itertools
import weakref
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
import pytest

from optc.runtime.speculative.planning import plan_drafts
from optc.runtime.speculative.planning.plan_drafts import MARGIN, Costs, DraftPlan, DraftPlans
from optc.runtime.speculative.planning.row_costs import RowCosts


def line(per_row: float, rows: int = 64, unit: float = 1.0) -> RowCosts:
    """A step of one row takes ``unit``, each further one ``per_row`` of it."""
    return RowCosts((1, rows), (unit, unit * (1.0 + per_row * (rows - 1))))


def always(limit: int, *rates: float) -> list[list[float]]:
    """Each of so many drafts of a request holds equally often."""
    return [[rate] * limit for rate in rates]


def speed(counts: tuple[int, ...], rates: list[list[float]], sequences: int, costs: Costs) -> float:
    """Tokens a second, as a multiple of those of plain decoding."""
    tokens = sequences + sum(
        sum(accumulate(mine[:count], mul)) for mine, count in zip(rates, counts, strict=True)
    )
    time = costs.verifying(sequences + sum(counts), sequences)
    for depth in range(1, max(counts, default=0) + 1):
        time += costs.drafting(sum(count >= depth for count in counts))
    return tokens / sequences * costs.target.at(sequences) / time


@pytest.mark.parametrize("per_row", [0.0, 0.03, 0.3, 1.0])
@pytest.mark.parametrize("draft", [None, 0.02, 0.2])
@pytest.mark.parametrize(
    "rates",
    [
        *(always(4, *rates) for rates in ([0.0], [0.3], [0.7], [0.95], [0.9, 0.1])),
        always(4, 0.6, 0.7, 0.8),
        [[0.3, 0.9, 0.9, 0.9], [0.9, 0.2]],
        [[0.9], [], [0.5, 0.6, 0.7]],
    ],
)
def test_no_other_counts_are_much_faster(
    rates: list[list[float]], draft: float | None, per_row: float
) -> None:
    """Whole numbers in order of gain can miss a little where a draft model batches."""
    drafts = None if draft is None else RowCosts((1, 8), (draft, 1.2 * draft))
    costs = Costs(line(per_row), drafts, 1.0, 0.01)
    sequences = len(rates) + 1
    plan = DraftPlans().best(rates, sequences, costs)
    found = speed(tuple(plan.counts), rates, sequences, costs)
    best = max(
        speed(counts, rates, sequences, costs)
        for counts in itertools.product(*(range(len(mine) + 1) for mine in rates))
    )
    assert found >= best - 0.03
    # rates are rounded, and drafts that are hardly ever accepted left out
    assert found == pytest.approx(1 + plan.gain, abs=0.03)
    assert plan.gain == 0 or plan.gain > MARGIN
    if best < 1 + MARGIN:
        assert plan.counts == [0] * len(rates)


def test_good_drafts_grow_where_rows_are_nearly_free() -> None:
    assert DraftPlans().best(always(8, 0.95), 1, Costs(line(0.01))).counts == [8]
    assert DraftPlans().best(always(8, 0.05), 1, Costs(line(0.1))).counts == [0]


def test_a_full_batch_that_is_bound_by_arithmetic_does_not_draft() -> None:
    costs = RowCosts((1, 16, 32), (1.0, 16.0, 32.0))
    assert DraftPlans().best(always(8, *[0.9] * 16), 16, Costs(costs)).counts == [0] * 16


def test_steps_that_pay_only_together_are_found() -> None:
    """Rows come in fours: the first draft costs as much as three."""
    costs = Costs(RowCosts((1, 2, 4, 5, 8), (1.0, 1.6, 1.6, 3.0, 3.0)))
    assert DraftPlans().best(always(7, 0.9), 1, costs).counts == [3]


def test_drafts_of_a_model_cost_their_steps() -> None:
    cheap, dear = (Costs(line(0.02), RowCosts((1,), (cost,))) for cost in (0.01, 0.5))
    rates = always(8, 0.7)
    assert DraftPlans().best(rates, 1, cheap).counts > DraftPlans().best(rates, 1, dear).counts


def test_only_the_requests_that_pay_are_drafted_for() -> None:
    rates = np.array([0.9, 0.1, 0.9, 0.0]).tolist()
    counts = DraftPlans().best(always(8, *rates), 4, Costs(line(0.1))).counts
    assert counts[0] == counts[2] > 0 == counts[1] == counts[3]


def test_a_budget_bounds_the_time_of_the_step() -> None:
    for drafts in (None, RowCosts((1,), (0.1,))):
        costs = Costs(line(0.1), drafts)
        free = DraftPlans().best(always(8, 0.9, 0.8), 2, costs)
        assert free.extra > 1.0
        bounded = DraftPlans().best(always(8, 0.9, 0.8), 2, costs, 0.55)
        assert 0 < sum(bounded.counts) < sum(free.counts)
        assert 0 < bounded.extra <= 0.55
        assert DraftPlans().best(always(8, 0.9, 0.8), 2, costs, 0.05).counts == [0, 0]


def test_what_making_drafts_takes_is_counted_once() -> None:
    costs = Costs(line(0.05))
    assert DraftPlans().best(always(8, 0.5), 1, costs).counts > [0]
    assert DraftPlans().best(always(8, 0.5), 1, costs._replace(making=2.0)).counts == [0]
    plan = DraftPlans().best(always(8, 0.9), 1, costs._replace(making=0.5))
    assert plan.extra == pytest.approx(0.5 + 0.05 * plan.counts[0])


def test_a_plan_is_made_once_an_engine_and_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    plan = plan_drafts._plan

    def counted(rates: Any, sequences: int, costs: Costs, budget: float) -> DraftPlan:
        made.append(sequences)
        return plan(rates, sequences, costs, budget)

    monkeypatch.setattr(plan_drafts, "_plan", counted)
    monkeypatch.setattr(plan_drafts, "_KEPT", 3)
    costs, one, other = Costs(line(0.05)), DraftPlans(), DraftPlans()
    for plans in (one, one, other):
        plans.best(always(8, 0.9), 1, costs).counts.clear()  # the caller's own
    assert made == [1, 1]
    for sequences in (2, 3, 4, 1):
        assert one.best(always(8, 0.9), sequences, costs).counts
    assert made == [1, 1, 2, 3, 4, 1], "three are kept"
    kept = weakref.ref(costs.target)
    del costs, one, other, plans
    gc.collect()
    assert kept() is None


def test_a_plan_without_drafts_gains_and_costs_nothing() -> None:
    assert DraftPlan([0, 0]) == ([0, 0], 0.0, 0.0)


@pytest.mark.parametrize("budget", [0.15, 0.35, 0.65])
def test_no_plan_within_the_budget_is_faster(budget: float) -> None:
    """The drafts of the dearest plan would win most, and are not taken."""
    costs = Costs(line(0.1))
    rates = always(8, 0.99)
    counts = DraftPlans().best(rates, 1, costs, budget).counts
    allowed = [n for n in range(9) if costs.verifying(1 + n, 1) - costs.target.at(1) <= budget]
    best = max(allowed, key=lambda n: speed((n,), rates, 1, costs))
    assert counts == [best]


def test_costs_that_cannot_be_are_no_reason_to_draft_nothing() -> None:
    """Rows that would take less than nothing: the step takes as long as a plain one."""
    costs = Costs(line(0.02), line(0.05, unit=0.1), row_extra=-0.6, making=0.3)
    plan = DraftPlans().best(always(8, 0.8), 1, costs)
    assert plan.counts[0] > 2
    assert costs.verifying(4, 1) == 1.0
