"""Utilization by the ceilings beside a step."""

from __future__ import annotations

import pytest

from optc.proof.bench.paired import paired_utilization


def test_each_round_is_compared_with_the_ceilings_around_it() -> None:
    """The machine becomes four times as fast; the step goes with it, at half of what it gives."""
    read = [1.0, 1.0, 4.0, 4.0]
    seconds = [2.0, 0.8, 0.5]  # at ceilings of 1, 2.5 and 4
    share = paired_utilization(1.0, seconds, [{"read": rate} for rate in read], "read")
    assert share == pytest.approx({"median": 0.5, "low": 0.5, "high": 0.5})


def test_the_range_is_that_of_the_rounds() -> None:
    samples = [{"read": 1.0}] * 12
    share = paired_utilization(1.0, [1 / n for n in range(11)[1:]] + [1 / 11], samples, "read")
    assert share == pytest.approx({"median": 6.0, "low": 2.0, "high": 10.0})


def test_a_ceiling_that_was_not_measured_has_no_share() -> None:
    assert paired_utilization(1.0, [1.0], [{"read": 1.0}] * 2, "bf16") is None
    assert paired_utilization(1.0, [], [{"read": 1.0}], "read") is None
