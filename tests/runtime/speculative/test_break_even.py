"""The controller in virtual time: what plain decoding and drafts really cost, and how often drafts
hold, is made up; what it decides must never be much slower than plain decoding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from optc.runtime.speculative.break_even import MAX_DRAFTED, BreakEven
from optc.runtime.speculative.controller import Drafted, Fixed, StepTimes
from optc.runtime.speculative.ledger import CREDIT, LEAST, MOST, SHARE, Ledger
from optc.runtime.speculative.plan_drafts import Costs
from optc.runtime.speculative.rate import Rate, Ratio
from optc.runtime.speculative.row_costs import RowCosts


def line(per_row: float, unit: float = 1.0) -> RowCosts:
    return RowCosts((1, 101), (unit, unit * (1 + 100 * per_row)))


@dataclass
class World:
    """What really happens.

    Attributes:
        rate: Acceptance of drafts.
        target: Seconds of a step by its rows.
        draft: Seconds of a draft step by its rows; None is free.
        noise: Relative deviation of times.
    """

    rate: float
    target: RowCosts
    draft: RowCosts | None = None
    noise: float = 0.0


def seasoned(costs: Costs) -> BreakEven:
    """A controller that has seen a plain step, as it wants to before it drafts."""
    controller = BreakEven(costs)
    assert controller.counts([Drafted(0, 100)], 1) == [0]
    controller.observe(StepTimes(1, 1, costs.target.at(1)))
    return controller


def run(
    controller: BreakEven,
    world: World,
    *,
    sequences: int = 1,
    tokens: int = 2000,
    prompt: int = 1,
    first_id: int = 0,
    seed: int = 0,
) -> tuple[float, int]:
    """Speed against plain decoding, and how many drafts there were."""
    rng = np.random.default_rng(seed)
    seconds = plain_s = 0.0
    lacking = dict.fromkeys(range(first_id, first_id + sequences), prompt)
    left = dict.fromkeys(lacking, tokens)
    drafted_in_all = 0
    while left:
        requests = [Drafted(i, left[i], lacking[i]) for i in left]
        counts = controller.counts(requests, len(requests))
        drafting_s = 0.0
        if any(counts) and world.draft is not None:
            drafting_s = world.draft.at(
                sum(lacking[i] for i, n in zip(left, counts, strict=True) if n)
            )
            for depth in range(2, max(counts) + 1):
                drafting_s += world.draft.at(sum(n >= depth for n in counts))
        rows = len(requests) + sum(counts)
        step_s = world.target.at(rows) * (1 + world.noise * rng.random())
        accepted_in_all = 0
        for number, count in zip(list(left), counts, strict=True):
            held = 0
            while held < count and rng.random() < world.rate:
                held += 1
            if count:
                controller.learn(number, count, held)
                lacking[number] = 1
            else:
                lacking[number] += 1
            accepted_in_all += held
            left[number] -= 1 + held
            if left[number] <= 0:
                del left[number]
                controller.forget(number)
        drafted_in_all += sum(counts)
        seconds += step_s + drafting_s
        plain_s += (
            world.target.at(len(requests))
            * (1 + world.noise / 2)
            * (1 + accepted_in_all / len(requests))
        )
        controller.observe(
            StepTimes(
                len(requests), rows, step_s + drafting_s, drafting_s, sum(counts), accepted_in_all
            )
        )
    return plain_s / seconds, drafted_in_all


@pytest.mark.parametrize("sequences", [1, 4, 16])
@pytest.mark.parametrize("per_row", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_bad_drafts_cost_at_most_two_percent(
    rate: float, per_row: float, sequences: int, noise: float
) -> None:
    world = World(rate, line(per_row), noise=noise)
    speed, _ = run(BreakEven(Costs(world.target)), world, sequences=sequences, tokens=500)
    assert speed > 0.98


@pytest.mark.parametrize("draft_s", [0.02, 0.3, 2.0])
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("prompt", [1, 500])
def test_a_bad_draft_model_costs_at_most_two_percent(
    rate: float, draft_s: float, prompt: int
) -> None:
    world = World(rate, line(0.1), line(0.05, draft_s))
    controller = BreakEven(Costs(world.target, world.draft))
    speed, _ = run(controller, world, tokens=1000, prompt=prompt)
    # Reading the first prompt is the price of knowing; none of the later ones is read.
    price = world.draft.at(prompt) / 1000 if world.draft and prompt > 1 else 0.0
    assert speed > 0.98 - price
    later, _ = run(controller, world, tokens=1000, prompt=prompt, first_id=1)
    assert later > 0.98


@pytest.mark.parametrize("wrong", [0.3, 3.0])
def test_wrong_measurements_cost_at_most_two_percent(wrong: float) -> None:
    """Rows cost far more than was measured, or all is slower than it was."""
    believed = line(0.02, wrong)
    world = World(0.6, line(1.0))
    speed, _ = run(BreakEven(Costs(believed)), world, tokens=1000)
    assert speed > 0.97


@pytest.mark.parametrize(
    ("rate", "per_row", "sequences", "least"),
    [(0.95, 0.02, 1, 4.5), (0.8, 0.05, 1, 2.5), (0.9, 0.02, 8, 2.0), (0.6, 0.1, 1, 1.3)],
)
def test_good_drafts_win(rate: float, per_row: float, sequences: int, least: float) -> None:
    world = World(rate, line(per_row))
    speed, _ = run(BreakEven(Costs(world.target)), world, sequences=sequences)
    assert speed > least


def test_a_good_draft_model_wins_although_it_must_read_the_prompt() -> None:
    world = World(0.7, line(0.05), line(0.02, 0.05))
    controller = BreakEven(Costs(world.target, world.draft))
    speed, _ = run(controller, world, tokens=300, prompt=2000)
    assert speed > 1.5


def test_for_the_last_tokens_of_a_request_no_prompt_is_read() -> None:
    world = World(0.9, line(0.05), line(0.5, 0.05))
    controller = seasoned(Costs(world.target, world.draft))
    assert controller.counts([Drafted(0, 5, 4000)], 1) == [0]
    controller = seasoned(Costs(world.target, world.draft))
    assert controller.counts([Drafted(0, 5000, 4000)], 1) != [0]


def test_until_something_is_known_one_prompt_at_a_time_is_read() -> None:
    world = World(0.9, line(0.01), line(0.01, 0.01))
    controller = seasoned(Costs(world.target, world.draft))
    requests = [Drafted(i, 5000, 400) for i in range(4)]
    assert [count > 0 for count in controller.counts(requests, 4)] == [True, False, False, False]
    for _ in range(4):
        controller.learn(0, 3, 3)
    assert all(controller.counts(requests, 4))


def test_it_notices_when_drafts_become_good() -> None:
    controller = BreakEven(Costs(line(0.05)))
    bad = World(0.0, line(0.05))
    run(controller, bad, tokens=1000)
    good = World(0.95, line(0.05))
    speed, _ = run(controller, good, tokens=3000, first_id=1)
    assert speed > 2


def test_a_new_request_begins_with_what_others_accepted() -> None:
    controller = seasoned(Costs(line(0.1)))
    for _ in range(50):
        controller.learn(0, 8, 0)
    assert controller.counts([Drafted(1, 100)], 1) == [0]
    for _ in range(50):
        controller.learn(2, 16, 16)
    assert controller.counts([Drafted(1, 100)], 1) == [MAX_DRAFTED]


def test_a_single_slow_step_does_not_stop_drafts_for_long() -> None:
    controller = BreakEven(Costs(line(0.02)))
    world = World(0.9, line(0.02))
    run(controller, world, tokens=500)
    controller.observe(StepTimes(1, 9, 500.0, 0.0, 8, 0))
    speed, _ = run(controller, world, tokens=300, first_id=1)
    assert speed > 2


def test_the_ledger_keeps_within_its_bounds() -> None:
    ledger = Ledger()
    assert ledger.balance == CREDIT
    ledger.settle(-100.0)
    assert ledger.balance == CREDIT - 1, "one step at most is lost at once"
    for _ in range(5):
        ledger.settle(-0.5)
    assert ledger.balance == LEAST
    assert ledger.in_debt
    ledger.passed(1.0)
    assert ledger.balance == LEAST + SHARE
    ledger.settle(100.0)
    assert ledger.balance == MOST


def test_only_tested_drafts_count() -> None:
    rate = Rate(0.0)
    for _ in range(300):
        rate.observe(8, 2)
    assert rate.value == pytest.approx(2 / 3, abs=0.01)
    for _ in range(300):
        rate.observe(4, 4)
    assert rate.value == pytest.approx(1, abs=0.01)


def test_a_ratio_begins_with_its_first_value_and_believes_no_leap() -> None:
    ratio = Ratio()
    ratio.observe(3.0)
    assert ratio.value == 3.0
    for _ in range(30):
        ratio.observe(3.0)
    ratio.observe(3000.0)
    assert ratio.value == pytest.approx(3.15)


def test_a_fixed_number_stays() -> None:
    controller = Fixed(3)
    controller.learn(0, 3, 0)
    controller.observe(StepTimes(1, 4, 1.0, 0.0, 3, 0))
    controller.forget(0)
    assert controller.counts([Drafted(0, 9), Drafted(1, 9)], 99) == [3, 3]
