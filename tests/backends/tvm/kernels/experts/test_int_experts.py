"""Matmuls by experts of int8 and int4 weights against float64 from exact integer sums."""

from __future__ import annotations

import pytest

from optc.backends.tvm.kernels.experts.int_experts import IntExperts
from optc.errors import UnsupportedError
from tests.backends.tvm.experts.cases import case_of, check
from tests.backends.tvm.kernel_cases import TARGETS
from tests.backends.tvm.matmul_cases import isa_that_runs

#: Ragged N and K; one and many experts; with 8 bits K in short panels.
CONFIGS = [
    IntExperts(70, 1100, bias=True, experts=4, chosen=3, spread=True),
    IntExperts(64, 100, bits=4, group_size=32, asymmetric=True, experts=64, chosen=8),
    IntExperts(64, 100, bits=4, group_size=32, minimums=True, experts=5, chosen=2),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_matches_float64_whatever_the_batch_mates(config: IntExperts, target: str) -> None:
    rows = 70 if config.spread else 70 * config.chosen
    check(case_of(config, rows), isa_that_runs(target), 130)


def test_sums_are_kept_between_panels_of_k_for_each_span() -> None:
    config = IntExperts(64, 6200, experts=2, chosen=1)
    check(case_of(config, 300), isa_that_runs("x86-64-v4-vnni"), 130)


def test_as_many_experts_as_there_are_can_be_chosen() -> None:
    with pytest.raises(UnsupportedError, match="5 of 4 experts cannot be chosen"):
        IntExperts(64, 64, experts=4, chosen=5)
