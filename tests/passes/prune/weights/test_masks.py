"""Masks have exactly as many weights as they should, and the largest ones."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.prune.weights.amounts import Amount
from optc.passes.prune.weights.masks import keep_largest, mask_of


@pytest.mark.parametrize("kept", [0, 1, 3, 7])
@pytest.mark.parametrize("values", [3, 1000])  # few values: many are equal
def test_the_largest_stay_and_the_first_of_equals(kept: int, values: int) -> None:
    groups = np.random.default_rng(kept).integers(0, values, (50, 7)).astype(np.float32)
    mask = keep_largest(groups, kept)
    for row, found in zip(groups, mask, strict=True):
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))
        assert set(np.flatnonzero(found)) == set(order[:kept])


def test_rows_layers_and_patterns() -> None:
    scores = np.random.default_rng(0).random((12, 24)).astype(np.float32)
    scores[0] += 10  # a row that matters
    whole, rows = mask_of(scores, Amount(0.25)), mask_of(scores, Amount(0.25), by_row=True)
    assert whole.sum() == 12 * 18
    assert whole[0].all()
    assert (rows.sum(axis=1) == 18).all()
    for kept, of in ((2, 4), (4, 8)):
        found = mask_of(scores, Amount(0.5, kept, of))
        assert (found.reshape(-1, of).sum(axis=1) == kept).all()
        least = np.where(found, scores, np.inf).reshape(-1, of).min(axis=1)
        most = np.where(found, -np.inf, scores).reshape(-1, of).max(axis=1)
        assert (least > most).all()


def test_a_share_of_zero_keeps_all() -> None:
    assert mask_of(np.zeros((3, 5), np.float32), Amount(0)).all()
