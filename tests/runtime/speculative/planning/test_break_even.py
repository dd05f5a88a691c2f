"""The controller in virtual time: what plain decoding and drafts really cost, and how often drafts
hold, is made up; what it decides must never be much slower than plain decoding."""

from __future__ import annotations

import pytest

from optc.runtime.speculative.kinds import MAX_DRAFTED
from optc.runtime.speculative.planning.break_even import BreakEven
from optc.runtime.speculative.planning.controller import Draftable, Fixed, StepTimes
from optc.runtime.speculative.planning.ledger import (
    AT_FIRST,
    LEAST,
    LINE,
    MOST,
    MOST_LENT,
    SHARE,
    Ledger,
)
from optc.runtime.speculative.planning.plan_drafts import Costs
from optc.runtime.speculative.planning.rate import MedianLine, Rate, RecentMedian
from tests.runtime.speculative.virtual_time import World, by_chance, line, run


def seasoned(costs: Costs, sequences: int = 1) -> BreakEven:
    """A controller that has seen plain steps, as it wants to before it drafts."""
    controller = BreakEven(costs)
    requests = [Draftable(index, 100) for index in range(sequences)]
    for _ in range(3):
        assert controller.ready()
        assert not any(controller.counts(requests, sequences))
        controller.observe(StepTimes(sequences, sequences, costs.target.at(sequences)))
    return controller


@pytest.mark.parametrize("sequences", [1, 4, 16])
@pytest.mark.parametrize("per_row", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_bad_drafts_cost_at_most_two_percent(
    rate: float, per_row: float, sequences: int, noise: float
) -> None:
    world = World(by_chance(rate), line(per_row), noise=noise)
    speed = run(BreakEven(Costs(world.target)), world, sequences=sequences, tokens=500).speed
    assert speed > 0.98


@pytest.mark.parametrize("draft_s", [0.02, 0.3, 2.0])
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("prompt", [1, 500])
def test_a_bad_draft_model_costs_at_most_two_percent(
    rate: float, draft_s: float, prompt: int
) -> None:
    world = World(by_chance(rate), line(0.1), line(0.05, draft_s))
    controller = BreakEven(Costs(world.target, world.draft))
    speed = run(controller, world, tokens=1000, prompt=prompt).speed
    # Reading the first prompt is the price of knowing; none of the later ones is read.
    price = world.draft.at(prompt) / 1000 if world.draft and prompt > 1 else 0.0
    assert speed > 0.98 - price
    later = run(controller, world, tokens=1000, prompt=prompt, first_id=1).speed
    assert later > 0.98


@pytest.mark.parametrize("wrong", [0.3, 3.0])
def test_wrong_measurements_cost_at_most_two_percent(wrong: float) -> None:
    """Rows cost far more than was measured, or all is slower than it was."""
    believed = line(0.02, wrong)
    world = World(by_chance(0.6), line(1.0))
    speed = run(BreakEven(Costs(believed)), world, tokens=1000).speed
    assert speed > 0.97


@pytest.mark.parametrize(
    ("rate", "per_row", "sequences", "least"),
    [(0.95, 0.02, 1, 4.5), (0.8, 0.05, 1, 2.5), (0.9, 0.02, 8, 2.0), (0.6, 0.1, 1, 1.3)],
)
def test_good_drafts_win(rate: float, per_row: float, sequences: int, least: float) -> None:
    world = World(by_chance(rate), line(per_row))
    speed = run(BreakEven(Costs(world.target)), world, sequences=sequences).speed
    assert speed > least


def test_a_good_draft_model_wins_although_it_must_read_the_prompt() -> None:
    world = World(by_chance(0.7), line(0.05), line(0.02, 0.05))
    controller = BreakEven(Costs(world.target, world.draft))
    speed = run(controller, world, tokens=300, prompt=1500).speed
    assert speed > 1.5


def test_for_the_last_tokens_of_a_request_no_prompt_is_read() -> None:
    controller = seasoned(Costs(line(0.05), line(0.01, 0.05)))
    assert controller.counts([Draftable(0, 5, 4000)], 1) == [0]
    controller = seasoned(Costs(line(0.05), line(0.01, 0.05)))
    assert controller.counts([Draftable(0, 5000, 4000)], 1) != [0]


def test_no_prompt_is_read_that_the_ledger_cannot_pay_for() -> None:
    controller = seasoned(Costs(line(0.05), line(0.1, 0.05)))
    assert controller.counts([Draftable(0, 100_000, 4000)], 1) == [0], "twenty plain steps"


def test_until_something_is_known_one_prompt_at_a_time_is_read() -> None:
    world = World(by_chance(0.9), line(0.01), line(0.01, 0.01))
    controller = seasoned(Costs(world.target, world.draft), 4)
    requests = [Draftable(i, 5000, 400) for i in range(4)]
    assert [count > 0 for count in controller.counts(requests, 4)] == [True, False, False, False]
    for _ in range(4):
        controller.learn(0, 3, 3)
    assert all(controller.counts(requests, 4))


def test_it_notices_when_drafts_become_good() -> None:
    controller = BreakEven(Costs(line(0.05)))
    bad = World(by_chance(0.0), line(0.05))
    run(controller, bad, tokens=1000)
    good = World(by_chance(0.95), line(0.05))
    speed = run(controller, good, tokens=3000, first_id=1).speed
    assert speed > 2


def test_a_new_request_begins_with_what_others_accepted() -> None:
    controller = seasoned(Costs(line(0.1)))
    for _ in range(50):
        controller.learn(0, 8, 0)
    assert controller.counts([Draftable(1, 100)], 1) == [0]
    for _ in range(50):
        controller.ready()
        controller.learn(2, 16, 16)
        controller.observe(StepTimes(1, 17, 2.6, 0.0, 16, 16))
    assert controller.counts([Draftable(1, 100)], 1) == [MAX_DRAFTED]


def test_a_step_takes_no_longer_than_can_be_lost() -> None:
    controller = seasoned(Costs(line(0.1)))
    drafts = controller.counts([Draftable(1, 100)], 1)[0]
    assert 0 < drafts * 0.1 <= LINE * 100 + SHARE


def test_a_single_slow_step_does_not_stop_drafts_for_long() -> None:
    controller = BreakEven(Costs(line(0.02)))
    world = World(by_chance(0.9), line(0.02))
    run(controller, world, tokens=500)
    controller.observe(StepTimes(1, 9, 500.0, 0.0, 8, 0))
    speed = run(controller, world, tokens=300, first_id=1).speed
    assert speed > 2


@pytest.mark.parametrize("seed", range(8))
def test_steps_that_are_held_up_do_not_stop_drafts(seed: int) -> None:
    """One step in six takes three times as long, with drafts or without."""
    world = World(by_chance(0.8), line(0.02), line(0.05, unit=0.15), noise=0.1, held_up=0.17)
    controller = BreakEven(Costs(world.target, line(0.05, unit=0.1)))
    speed = run(controller, world, tokens=2000, seed=seed).speed
    assert speed > 1.9


def test_the_ledger_keeps_within_its_bounds() -> None:
    ledger = Ledger()
    assert ledger.balance == AT_FIRST
    ledger.settle(-AT_FIRST)
    assert ledger.budget(100) == LINE * 100
    assert ledger.budget(10**9) == MOST_LENT
    ledger.settle(-0.5)
    ledger.passed()
    assert ledger.balance == -0.5 + SHARE
    for _ in range(ledger.wait(0.5)):
        ledger.passed()
    assert 0 < ledger.balance < 3 * SHARE
    ledger.settle(-100.0)
    assert ledger.balance == LEAST
    ledger.settle(100.0)
    assert ledger.balance == MOST


def test_a_rate_forgets_its_guess_and_what_is_long_ago() -> None:
    rate = Rate(0.75, 4.0, 0.05)
    assert rate.value == 0.75
    rate.observe(False)
    assert rate.value == pytest.approx(3 * 0.95 / 4.8)
    for held in [True, False, False] * 200:
        rate.observe(held)
    assert rate.value == pytest.approx(1 / 3, abs=0.02)
    for _ in range(300):
        rate.observe(True)
    assert rate.value == pytest.approx(1, abs=0.01)


def test_a_line_is_found_and_believes_no_leap_not_even_the_first() -> None:
    line = MedianLine(1.0)
    line.observe(0.1, 200.0)
    assert (line.at_0, line.slope) == (0.0, 1.0)
    for number in range(400):
        x = 0.1 * (1 + number % 4)
        line.observe(x, 0.5 + 2 * x)
    assert line.at_0 == pytest.approx(0.5, abs=0.05)
    assert line.slope == pytest.approx(2.0, abs=0.15)
    line.observe(0.1, 1000.0)
    assert line.at_0 + line.slope * 0.1 < 0.85


def test_where_all_drafts_are_alike_a_further_one_costs_what_was_measured() -> None:
    line = MedianLine(1.0)
    for _ in range(100):
        line.observe(0.1, 0.7)
    assert line.slope == pytest.approx(1.0)
    assert line.at_0 == pytest.approx(0.6, abs=0.02)


@pytest.mark.parametrize("model", [False, True])
def test_a_first_draft_that_takes_long_is_not_the_last(model: bool) -> None:
    """As first steps of an engine do; here fifty plain steps."""
    draft = line(0.05, 0.05) if model else None
    controller = seasoned(Costs(line(0.05), draft))
    assert controller.ready()
    assert any(controller.counts([Draftable(0, 100)], 1))
    controller.learn(0, 1, 1)
    controller.observe(StepTimes(1, 2, 51.05, 50.0, 1, 1))
    world = World(by_chance(0.8), line(0.05), draft)
    assert run(controller, world, tokens=2000, first_id=1).speed > 1.5


def test_a_median_is_not_moved_by_what_is_far_off() -> None:
    median = RecentMedian()
    assert not median.known
    for value in (50.0, 3.0, 3.1):
        median.observe(value)
    assert median.known
    assert median.value == 3.1
    for value in (3.2, 3.0, 90.0, 0.1):
        median.observe(value)
    assert median.value == 3.1
    for _ in range(9):
        median.observe(7.0)
    assert median.value == 7.0


def test_plain_steps_of_other_batches_say_nothing() -> None:
    """Steps of sixteen sequences take half as long again as was measured with one."""
    controller = seasoned(Costs(line(0.05)))
    world = World(by_chance(0.3), line(0.05, 1.5))
    sixteen = [Draftable(i, 100) for i in range(16)]
    assert not any(controller.counts(sixteen, 16))
    assert run(controller, world, sequences=16, tokens=500, first_id=1).speed > 0.98


def test_a_fixed_number_stays() -> None:
    controller = Fixed(3)
    controller.learn(0, 3, 0)
    controller.observe(StepTimes(1, 4, 1.0, 0.0, 3, 0))
    controller.forget(0)
    assert controller.counts([Draftable(0, 9), Draftable(1, 9)], 99) == [3, 3]
