"""Weighted sums of a token's rows against float64."""

from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.kernels.experts.combine_experts import CombineExperts
from optc.errors import UnsupportedError
from tests.backends.tvm.kernel_cases import TARGETS, blank, isa_named, run, sqnr


@pytest.mark.parametrize("target", TARGETS)
def test_matches_float64_whatever_the_batch_mates(target: str) -> None:
    config, tokens = CombineExperts(width=77, chosen=3), 50
    rng = np.random.default_rng(0)
    y = rng.standard_normal((tokens * 3, 77), np.float32)
    weights = rng.standard_normal((tokens, 3), np.float32)
    expected = np.einsum("tkn,tk->tn", y.reshape(tokens, 3, 77).astype(np.float64), weights)
    isa = isa_named(target)
    out = run(config, isa, y, weights, blank(tokens, 77))[-1]
    assert sqnr(out, expected) > 130
    part = run(config, isa, y[21:27], weights[7:9], blank(2, 77))[-1]
    np.testing.assert_array_equal(part, out[7:9])


def test_one_expert_is_its_row_times_its_weight() -> None:
    y = np.array([[1, 2], [3, 4]], np.float32)
    weights = np.array([[0.5], [2]], np.float32)
    out = run(CombineExperts(2, 1), isa_named("x86-64-v3"), y, weights, blank(2, 2))[-1]
    np.testing.assert_array_equal(out, [[0.5, 1], [6, 8]])


def test_no_experts_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="nothing to combine of 0 experts"):
        CombineExperts(8, 0)
