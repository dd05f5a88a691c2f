"""The pass that is to blame, by what each adds."""

from __future__ import annotations

import math

import pytest

from optc.proof.gates.bisect.stages import StageDivergences


@pytest.mark.parametrize(
    ("kl", "culprit"),
    [
        ((0.0,), None),
        ((0.0, 1e-9, 5e-7), None),
        ((0.0, 1e-4, 1e-4, 3e-3, 3e-3), 3),
        ((0.0, 2e-3, 2e-3, 5e-3), 1),
        ((0.0, 1e-3, 1e-3, 5e-3), 3),
        ((0.0, 2.0, 1.0, 1.5), 1),
        ((0.0, 0.5, math.inf, 0.1), 2),
        ((0.0, 0.5, math.nan, math.nan), 2),
    ],
)
def test_the_first_that_adds_half_of_what_the_worst_one_adds(
    kl: tuple[float, ...], culprit: int | None
) -> None:
    assert StageDivergences(kl, ()).culprit() == culprit
