"""Matmuls by experts of float32 and bfloat16 weights against float64."""

from __future__ import annotations

import pytest

from optc.backends.tvm.kernels.experts.float_experts import FloatExperts
from tests.backends.tvm.experts.cases import case_of, check
from tests.backends.tvm.matmul_cases import isa_that_runs

FLOAT = FloatExperts(70, 77, bias=True, experts=5, chosen=2, spread=True)
BF16 = FloatExperts(64, 99, "bfloat16", experts=4, chosen=3)


@pytest.mark.parametrize(
    ("config", "target"),
    [
        (FLOAT, "x86-64-v3"),
        (FLOAT, "x86-64-v4-vnni"),
        (BF16, "x86-64-v3"),
        (BF16, "v4-bf16"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_matches_float64_whatever_the_batch_mates(config: FloatExperts, target: str) -> None:
    rows = 70 if config.spread else 70 * config.chosen
    check(case_of(config, rows), isa_that_runs(target), 110)
