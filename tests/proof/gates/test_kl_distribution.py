"""The distribution of KL: counts against an independent loop, and quantiles."""

from __future__ import annotations

import math

import numpy as np

from optc.proof.gates.divergence import RowScores
from optc.proof.gates.kl_distribution import kl_distribution
from tests.proof.gates.test_worst_contexts import scores


def counted(kl: list[float], first: float, bins_per_decade: int, bins: int) -> list[int]:
    counts = [0] * bins
    for value in kl:
        index = 0
        while index < bins - 1 and value >= first * 10.0 ** (index / bins_per_decade):
            index += 1
        counts[index] += 1
    return counts


def test_counts_of_bins() -> None:
    rng = np.random.default_rng(0)
    kl = [0.0, 1e-12, 5e-9, *(10.0 ** rng.uniform(-9, 3, 200)).tolist()]
    found = kl_distribution([scores(*kl[:50]), scores(*kl[50:])])
    assert sum(found["counts"]) == len(kl)
    expected = counted(kl, found["first"], found["bins_per_decade"], len(found["counts"]))
    assert found["counts"] == expected


def test_quantiles_are_values_of_rows() -> None:
    found = kl_distribution([scores(*range(1, 1001))])
    assert [found[key] for key in ("p50", "p90", "p99", "p99_9")] == [501, 901, 991, 1000]


def test_what_is_not_finite_lies_above_all() -> None:
    rows: RowScores = scores(1.0, math.nan, math.inf, 1.0)
    found = kl_distribution([rows])
    assert found["counts"][-1] == 2
    assert (found["p50"], found["p90"], found["p99"]) == (None, None, None)
    assert kl_distribution([scores(1.0, 1.0, 1.0, math.nan)])["p50"] == 1.0
