"""Costs of now against arithmetic by hand, on a target whose times are round numbers."""

from __future__ import annotations

import pytest

from optc.runtime.speculative.planning.live_costs import LiveCosts
from optc.runtime.speculative.planning.plan_drafts import Costs
from optc.runtime.speculative.planning.rate import MedianLine
from optc.runtime.speculative.planning.row_costs import RowCosts

#: 10 for a row, 2 for each further one up to 4, then 5.
TARGET = RowCosts((1, 4, 8), (10.0, 16.0, 36.0))
DRAFT = RowCosts((1, 4), (1.0, 2.0))


def after_plain(sequences: int, factor: float, steps: int = 3) -> LiveCosts:
    """Costs after plain steps that took ``factor`` times as long as measured."""
    costs = LiveCosts(Costs(TARGET, DRAFT))
    for _ in range(steps):
        costs.observe_plain(sequences, TARGET.at(sequences) * factor)
    return costs


def test_what_was_measured_holds_until_something_is_observed() -> None:
    costs = LiveCosts(Costs(TARGET, DRAFT))
    assert costs.now() == Costs(TARGET, DRAFT)
    assert costs.slower(4) == 1.0
    assert costs.plain_s(4) == 16.0


def test_plain_steps_are_known_after_three_of_so_many_sequences() -> None:
    assert not LiveCosts(Costs(TARGET)).knows(2)
    assert not after_plain(2, 1.5, steps=2).knows(2)
    costs = after_plain(2, 1.5)
    assert costs.knows(2)
    assert not costs.knows(3)


def test_a_slower_machine_is_seen_in_plain_steps() -> None:
    costs = after_plain(4, 1.5)
    assert costs.slower(4) == 1.5
    assert costs.slower(1) == 1.0, "of other numbers of sequences nothing is known"
    assert costs.plain_s(4) == 24.0


def test_a_row_of_a_prompt_costs_what_the_last_rows_do() -> None:
    assert after_plain(2, 1.5).row_s(2) == 7.5
    assert LiveCosts(Costs(RowCosts((2,), (8.0,)))).row_s(3) == 4.0


def test_two_measured_steps_say_what_a_row_costs() -> None:
    assert LiveCosts(Costs(RowCosts((1, 3), (8.0, 12.0)))).row_s(1) == 2.0


def test_what_rows_cost_is_rounded_to_a_thousandth_of_a_step() -> None:
    costs = LiveCosts(Costs(TARGET))
    for _ in range(3):
        for drafts in (1, 2):
            costs.observe_drafts(1, 1 + drafts, TARGET.at(1 + drafts) + 1.2345678 * drafts)
    assert costs.now().row_extra == pytest.approx(1.23, abs=1e-9)
    assert costs.now().making == pytest.approx(0.0)


def test_rows_of_drafts_cost_what_they_took_beyond_the_measured_times() -> None:
    costs = after_plain(2, 2.0)
    # 4 rows were to take 16, are twice as slow, and took 7 more: 1, and 3 for each of two drafts.
    for _ in range(4):
        costs.observe_drafts(2, 4, 39.0)
        costs.observe_drafts(2, 3, 2 * 14.0 + 4.0)
    assert costs.now().row_extra == pytest.approx(1.5)
    assert costs.now().making == pytest.approx(0.5)
    assert costs.now().draft_factor == 1.0, "what slows the target slows the draft model too"


def test_what_steps_of_one_number_of_drafts_take_is_not_said_of_their_rows() -> None:
    costs = LiveCosts(Costs(TARGET))
    for _ in range(9):
        costs.observe_drafts(1, 2, 13.0)
    assert (costs.now().row_extra, costs.now().making) == (0.0, 1.0)


def test_the_first_step_with_drafts_and_three_more_are_not_believed_against_the_guesses() -> None:
    costs = LiveCosts(Costs(TARGET))
    for _ in range(4):
        costs.observe_drafts(1, 2, 13.0)
        assert costs.now().making == 0.0
    costs.observe_drafts(1, 2, 13.0)
    assert costs.now().making == 1.0


@pytest.mark.parametrize(
    ("seconds", "extra"),
    [
        (0.0, -4.0),  # no less than a plain step of 10, where 3 rows should take 14
        (1000.0, 20.0),  # no row takes longer than a step of its own
        (16.0, 2.0),
    ],
)
def test_what_drafts_cost_is_bounded(seconds: float, extra: float) -> None:
    costs = LiveCosts(Costs(TARGET))
    for _ in range(6):
        costs.observe_drafts(1, 3, seconds)
    assert costs.now().making == pytest.approx(extra)


def test_a_step_of_several_sequences_bounds_the_cost_of_a_row_by_its_own() -> None:
    costs = LiveCosts(Costs(TARGET))
    for _ in range(6):
        costs.observe_drafts(2, 4, 1000.0)
    assert costs.now().making == pytest.approx(12.0)


def test_a_draft_model_is_slower_than_measured_and_needs_some_time_before() -> None:
    costs, line = after_plain(1, 2.0), MedianLine(1.0)
    costs.observe_making(1, 1000.0, 1.0)  # cold: it does not count
    assert costs.now().draft_factor == 1.0
    for steps_s in (1.0, 2.0, 4.0, 1.0, 3.0):
        costs.observe_making(1, 2 * (0.5 + 1.5 * steps_s), steps_s)
        line.observe(steps_s, 0.5 + 1.5 * steps_s)
    now = costs.now()
    assert 1.3 < line.slope < 1.6
    assert now.draft_factor == round(line.slope, 2)
    assert now.making == pytest.approx(round(line.at_0 / 10, 2) * 10)


def test_what_was_learned_while_all_was_slow_holds_where_it_is_fast_again() -> None:
    costs, usual = after_plain(1, 2.0), after_plain(1, 1.0)
    for steps_s, drafts in ((1.0, 1), (2.0, 2), (4.0, 3), (1.0, 1), (3.0, 2), (2.0, 3)):
        for learner, factor in ((costs, 2.0), (usual, 1.0)):
            learner.observe_making(1, factor * (0.5 + 1.5 * steps_s), steps_s)
            learner.observe_drafts(1, 1 + drafts, factor * (TARGET.at(1 + drafts) + 0.5 * drafts))
    assert costs.now() == usual.now()
    for _ in range(9):
        costs.observe_plain(1, TARGET.at(1))
    assert costs.now() == usual.now()


def test_making_without_a_draft_model_follows_the_latest_times() -> None:
    costs = LiveCosts(Costs(TARGET))
    costs.observe_making(1, 100.0, 0.0)
    # an eighth of a step at most at first, of which three tenths are believed
    assert costs.now().making == pytest.approx(0.4)  # 0.375, rounded to a hundredth of a step
    costs.observe_making(1, 100.0, 0.0)
    assert costs.now().making == pytest.approx(0.5)  # 0.375 + 0.3 * (0.75 - 0.375)
    for _ in range(60):
        costs.observe_making(1, 2.0, 0.0)
    assert costs.now().making == pytest.approx(2.0)
    assert costs.now().draft_factor == 1.0
