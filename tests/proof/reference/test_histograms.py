"""Histograms of magnitudes, against NumPy's over all values at once."""

from __future__ import annotations

import numpy as np
import pytest

from optc.proof.reference.blockwise import observe
from optc.proof.reference.histograms import BINS, HistogramObserver, MagnitudeHistogram
from optc.proof.reference.partition import partition
from tests.support.dense_models import V, dense_model


def of(*chunks: np.ndarray) -> MagnitudeHistogram:
    histogram = MagnitudeHistogram()
    for chunk in chunks:
        histogram.add(chunk)
    return histogram


@pytest.mark.parametrize("scale", [1e-3, 1.0, 700.0])
def test_counts_are_numpys_whatever_the_order_of_the_values(scale: float) -> None:
    values = (np.random.default_rng(0).standard_normal(5000) * scale).astype(np.float32)
    values[7] = -40 * scale  # comes when a smaller limit was chosen
    late, early = of(*np.split(values[::-1], 5)), of(*np.split(values, 5))
    expected, _ = np.histogram(np.abs(values), bins=BINS, range=(0, early.limit))
    np.testing.assert_array_equal(early.counts, expected)
    np.testing.assert_array_equal(early.counts, late.counts)
    assert early.limit == late.limit
    assert early.limit / 2 <= early.largest == np.abs(values).max() < early.limit


def test_a_power_of_two_and_zeros() -> None:
    histogram = of(np.zeros(3), np.array([0.0, -2.0]), np.zeros(0))
    assert (histogram.limit, histogram.largest) == (4.0, 2.0)
    assert (histogram.counts[0], histogram.counts[BINS // 2]) == (4, 1)
    assert of(np.zeros(3)).counts[0] == 3


def test_the_observer_counts_every_value_it_is_asked_for() -> None:
    model = dense_model(2)
    blocks = partition(model).blocks
    wanted = [blocks[0].nodes[0].outputs[0], blocks[1].source]
    observer = HistogramObserver(wanted)
    tokens = np.random.default_rng(0).integers(0, V, (3, 8), np.int32)
    observe(model, tokens, [observer], 1)
    counts = [observer.histograms[value].counts.sum() for value in wanted]
    width = 48
    assert counts == [24 * width, 2 * 24 * width]  # the second is between two blocks
