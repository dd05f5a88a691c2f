"""Amounts of work against counting one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.metrics.step_workload import StepWorkload, expected_experts, visible_pairs

sequences = st.lists(
    st.integers(1, 40).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n))), max_size=5
)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 50))
def test_pairs_equal_counting(rows: int, before: int, window: int) -> None:
    length = before - 1 + rows
    seen = [min(t, window or t) for t in range(length - rows + 1, length + 1)]
    assert visible_pairs(rows, length, window) == sum(seen)


@given(sequences, sequences)
def test_amounts_add_up_over_steps(first: list[tuple[int, int]], second: list[tuple[int, int]]):
    work, rest = StepWorkload((0, 7)), StepWorkload((0, 7))
    work.add_step(first, 1)
    before = work.copy()
    work.add_step(second, 2)
    rest.add_step(second, 2)
    assert work.since(before) == rest
    assert work.rows == sum(rows for rows, _ in first + second)
    seen = [set(range(max(0, n - r - 6), n)) for r, n in first + second]
    assert work.kv_tokens == [sum(n for _, n in first + second), sum(map(len, seen))]
    assert work.factors()["1"] == work.factors()["R"] - 1 == 2
    assert work.factors()["kv1"] == work.kv_tokens[1]


def test_pairs_are_rows_by_what_each_sees() -> None:
    work = StepWorkload((0, 4))
    work.add_step([(1, 10), (3, 5)], 1)  # a token after nine others; three after two others
    assert work.pairs == [10 + 3 + 4 + 5, 4 + 3 + 4 + 4]


def test_experts_are_counted_by_the_rows_of_each_step() -> None:
    """One row chooses 2 of 8, two choose 2 and, each with 6/8, another 2; 100 nearly all."""
    work = StepWorkload()
    for rows in (1, 1, 2, 100):
        work.add_step([(rows, rows)], 1)
    before = work.copy()
    work.add_step([(1, 5), (1, 7)], 2)
    assert work.factors()["T:2of8"] == pytest.approx(2 + 2 + 2 * 3.5 + 8)
    assert work.factors()["R:2of8"] == pytest.approx(4 * 2 + 3.5)
    assert work.since(before).factors()["T:2of8"] == 3.5
    with pytest.raises(KeyError, match="T:2to8"):
        work.factors()["T:2to8"]


def test_expected_experts_against_counting_all_choices() -> None:
    """Of 4 experts each of two rows chooses one of the 6 pairs."""
    pairs = [{a, b} for a in range(4) for b in range(a)]
    seen = [len(one | other) for one in pairs for other in pairs]
    assert expected_experts(2, 2, 4) == pytest.approx(sum(seen) / len(seen))
    assert expected_experts(0, 2, 4) == 0
    assert expected_experts(3, 4, 4) == 4
