"""Matmuls of experts by tiles of AMX: spans of rows that do not lie in order."""

from __future__ import annotations

from typing import Any

import pytest

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.experts.int_experts import IntExperts
from optc.backends.tvm.kernels.experts.two_level_experts import TwoLevelExperts
from tests.amx.model import has_amx, model
from tests.backends.tvm.experts.cases import case_of, check

#: Ragged N and K; spans of few rows, of parts of a tile and of many.
CONFIGS = [
    IntExperts(70, 1100, bias=True, experts=4, chosen=3, spread=True),
    IntExperts(64, 96, experts=9, chosen=2),
    TwoLevelExperts(70, 192, experts=3, chosen=2, spread=True),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_matches_float64_whatever_the_batch_mates(config: Any, amx: Isa) -> None:
    if not has_amx():
        model().counts()
    case = case_of(config, 70 if config.spread else 70 * config.chosen)
    check(case, amx, 130)
    if not has_amx():
        assert model().counts().dots
