"""Matmuls by experts of 2 to 6 bits with integer group scales against float64."""

from __future__ import annotations

import pytest

from optc.backends.tvm.kernels.experts.two_level_experts import TwoLevelExperts
from tests.backends.tvm.experts.cases import case_of, check
from tests.backends.tvm.matmul_cases import isa_that_runs

V3, V4 = "x86-64-v3", "x86-64-v4-vnni"
#: Ragged N and K, a last group that is cut short, K in panels.
PANELS = TwoLevelExperts(64, 600, bits=4, experts=5, chosen=2, spread=True)
CASES = [
    (PANELS, V3),
    (PANELS, V4),
    (TwoLevelExperts(70, 77, bias=True, bits=6, experts=4, chosen=1), V3),
    (TwoLevelExperts(64, 77, 64, bias=True, bits=5, experts=4, chosen=2), V4),
    (TwoLevelExperts(70, 160, 64, bits=3, experts=4, chosen=2, spread=True), V3),
    (TwoLevelExperts(64, 96, bits=2, experts=4, chosen=2), V4),
]


@pytest.mark.parametrize(
    ("config", "target"), CASES, ids=lambda value: getattr(value, "name", value)
)
def test_matches_float64_whatever_the_batch_mates(config: TwoLevelExperts, target: str) -> None:
    rows = 60 if config.spread else 60 * config.chosen
    check(case_of(config, rows), isa_that_runs(target), 130)
