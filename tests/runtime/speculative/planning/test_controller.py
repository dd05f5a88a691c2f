from __future__ import annotations

from optc.runtime.speculative.planning.controller import PLACES, Draftable, Fixed, StepTimes


def test_places_are_graded_by_how_many_are_before() -> None:
    assert PLACES[:9] == (0, 1, 2, 2, 3, 3, 3, 3, 4)
    assert len(PLACES) == 64


def test_a_fixed_number_of_drafts_for_each_request_whatever_comes_of_it() -> None:
    controller = Fixed(3)
    requests = [Draftable(7, 20), Draftable(8, 1)]
    for _ in range(3):
        assert controller.ready()
        assert controller.counts(requests, 5) == [3, 3]
        controller.learn(7, 3, 0)
        controller.observe(StepTimes(2, 8, 1e9))
        controller.forget(7)
    assert controller.counts([], 5) == []


def test_a_request_needs_one_row_before_its_draft_if_nothing_is_said() -> None:
    assert Draftable(1, 2) == Draftable(1, 2, 1, PLACES)
    assert StepTimes(1, 2, 3.0) == StepTimes(1, 2, 3.0, 0.0, 0, 0, False)
