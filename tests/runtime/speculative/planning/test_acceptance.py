"""What is known of drafts: by grade, of one request and of all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.speculative.planning.acceptance import Acceptance, JointAcceptance
from optc.runtime.speculative.planning.controller import PLACES, Draftable


def rates(acceptance: Acceptance, request: int, grades: list[int]) -> list[float]:
    return acceptance.rates([Draftable(request, 99, 1, grades)], 16)[0]


def test_drafts_of_other_grades_are_known_by_themselves() -> None:
    acceptance = Acceptance()
    for _ in range(200):
        rates(acceptance, 0, [1, 1, 2, 2, 2])
        acceptance.learn(0, 5, 2)  # two of grade 1 hold, the first of grade 2 does not
    low, high, unknown = rates(acceptance, 0, [2, 1, 3])
    assert low < 0.03 < 0.97 < high
    assert unknown == 0.5


def test_drafts_behind_a_rejected_one_were_not_tested() -> None:
    acceptance = Acceptance()
    rates(acceptance, 0, [1, 2, 3])
    acceptance.learn(0, 3, 0)
    known = rates(acceptance, 0, [1, 2, 3])
    assert known[0] < 0.5
    assert known[1:] == [0.5, 0.5]


def test_a_request_begins_with_what_the_others_taught_and_then_goes_its_own_way() -> None:
    acceptance = Acceptance()
    for request in range(20):
        for _ in range(20):
            rates(acceptance, request, [4])
            acceptance.learn(request, 1, 1)
        acceptance.forget(request)
    assert rates(acceptance, 99, [4])[0] > 0.9
    for _ in range(20):
        rates(acceptance, 99, [4])
        acceptance.learn(99, 1, 0)
    assert rates(acceptance, 99, [4])[0] < 0.3
    assert rates(acceptance, 100, [4])[0] > 0.8, "one request does not spoil it for all"


def test_as_many_rates_as_drafts_may_be_made() -> None:
    acceptance = Acceptance()
    assert rates(acceptance, 0, [1, 2]) == [0.5, 0.5]
    assert len(acceptance.rates([Draftable(0, 99)], 7)[0]) == 7
    assert list(PLACES[:9]) == [0, 1, 2, 2, 3, 3, 3, 3, 4]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(0, 6)), max_size=60))
def test_what_is_kept_is_bounded_and_forgotten(history: list[tuple[int, int, int]]) -> None:
    acceptance = Acceptance()
    for request, drafted, accepted in history:
        rates(acceptance, request, [1, 2, 2, 3, 3, 3])
        acceptance.learn(request, drafted, min(drafted, accepted))
    for rate in rates(acceptance, 0, [1, 2, 3]):
        assert 0 < rate < 1
    for request in range(4):
        acceptance.forget(request)
    assert not acceptance._own
    assert not acceptance._grades
    assert len(acceptance._of_all) <= 3


def test_drafts_behind_sure_ones_are_worth_more_than_their_places_say() -> None:
    """Half the time one draft is made, which never holds, else four, which all hold."""
    acceptance = JointAcceptance()
    for _ in range(400):
        for drafted, accepted in ((1, 0), (4, 4)):
            rates(acceptance, 0, [1, 2, 3, 4])
            acceptance.learn(0, drafted, accepted)
    first, *others = rates(acceptance, 0, [1, 2, 3, 4])
    assert 0.4 < first < 0.6, "as often as it holds"
    assert others == [1.0, 1.0, 1.0], "they hold whenever they are made: no less than the first"


def test_where_all_drafts_are_made_their_joint_chances_are_those_of_one_after_the_other() -> None:
    acceptance, rng = JointAcceptance(), np.random.default_rng(0)
    for _ in range(6000):
        rates(acceptance, 0, [1, 2, 3])
        held = rng.random(3) < (0.9, 0.6, 0.8)
        acceptance.learn(0, 3, 3 if held.all() else int(held.argmin()))
        acceptance.forget(0)
    found = rates(acceptance, 1, [1, 2, 3])
    np.testing.assert_allclose(found, [0.9, 0.6, 0.8], atol=0.12)


def test_places_that_were_never_reached_hold_as_often_as_the_first() -> None:
    acceptance = JointAcceptance()
    assert rates(acceptance, 0, [1, 2]) == [0.5, 0.5]
    for _ in range(100):
        rates(acceptance, 0, [1, 2])
        acceptance.learn(0, 1, 1)
    first, second = rates(acceptance, 0, [1, 2])
    assert first == pytest.approx(second)
    assert first > 0.9


def test_verifications_of_all_requests_are_counted() -> None:
    acceptance = Acceptance()
    for request_id in (1, 1, 2):
        acceptance.learn(request_id, 3, 0)
    acceptance.forget(1)
    assert acceptance.verifications == 3


@pytest.mark.parametrize(
    ("kind", "held", "missed"), [(Acceptance, 0.602, 0.398), (JointAcceptance, 0.530, 0.470)]
)
def test_a_guess_counts_as_some_drafts_so_that_one_does_not_decide(
    kind: type[Acceptance], held: float, missed: float
) -> None:
    """As four drafts, of which two held, and as sixteen where drafts stop when they are unsure."""
    for accepted, expected in ((1, held), (0, missed)):
        acceptance = kind()
        rates(acceptance, 0, [1])
        acceptance.learn(0, 1, accepted)
        assert rates(acceptance, 0, [1]) == [pytest.approx(expected, abs=0.001)]
