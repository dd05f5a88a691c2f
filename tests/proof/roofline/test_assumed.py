"""Ceilings of machines that are not measured: all that engines' costs ask for."""

from __future__ import annotations

import pytest

from optc.proof.roofline.assumed import assumed_ceilings
from optc.proof.roofline.costs import PEAKS
from optc.system.hardware.target import parse_target


@pytest.mark.parametrize("target", ["native", "x86-64-v3", "sm_90"])
def test_every_peak_has_a_ceiling(target: str) -> None:
    found = assumed_ceilings(parse_target(target), 4)
    assert set(found) == {"read", *PEAKS}
    assert all(ceiling.best == ceiling.median > 0 for ceiling in found.values())


def test_arithmetic_of_a_cpu_follows_its_threads_and_bandwidth_does_not() -> None:
    one, four = (assumed_ceilings(parse_target("x86-64-v3"), count) for count in (1, 4))
    assert four["int8"].best == 4 * one["int8"].best
    assert four["read"] == one["read"]
    assert one["int8"].best > one["bf16"].best > one["fp32"].best
