"""Losses that follow from errors, and which ones are measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.passes.calibrating.estimates import estimate, nearest_alike, runs_within

errors = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=6, unique=True)


@given(errors, st.floats(0.01, 100))
def test_a_loss_in_proportion_to_the_error_is_found_everywhere(
    given: list[float], ratio: float
) -> None:
    measured = {given[0]: ratio * given[0], given[-1]: ratio * given[-1]}
    assert estimate(given, measured) == pytest.approx([ratio * error for error in given])


@given(errors)
def test_a_measured_error_has_its_loss(given: list[float]) -> None:
    measured = {error: 1.0 + index for index, error in enumerate(given)}
    assert estimate(given, measured) == pytest.approx(list(measured.values()))


def test_between_two_the_ratio_goes_with_the_logarithm() -> None:
    assert estimate([1, 10, 100, 0.1, 1000, 0], {1: 2.0, 100: 600.0}) == pytest.approx(
        [2.0, 40.0, 600.0, 0.2, 6000.0, 0.0]
    )


def test_without_an_error_nothing_is_lost() -> None:
    assert estimate([0.0, 1.0], {0.0: 0.0}) == [0.0, 0.0]


ROLES = [role for _ in range(5) for role in ("qkv", "down")]


@pytest.mark.parametrize(
    ("limit", "chosen", "formats"),
    [
        (30, list(range(10)), 3),
        (29, list(range(10)), 1),
        (9, [0, 1, 4, 5, 8, 9], 1),
        (5, [0, 1, 8, 9], 1),
        (0, [0, 1, 8, 9], 1),
    ],
)
def test_runs_are_left_out_until_they_are_cheap_enough(
    limit: float, chosen: list[int], formats: int
) -> None:
    assert runs_within(ROLES, [1.0] * 10, 3, limit) == (chosen, formats)


def test_a_ratio_is_taken_from_the_nearest_of_the_same_role() -> None:
    assert nearest_alike(4, ROLES, [0, 1, 8, 9]) == 0
    assert nearest_alike(7, ROLES, [0, 1, 8, 9]) == 9
    assert nearest_alike(2, ["a", "a", "b"], [0, 1]) == 1
