"""Ranges of activations that are to be quantized: how much of a few large values is clipped.

Each method takes a histogram of magnitudes and gives the magnitude that becomes the largest
integer. Clipping gives all other values finer steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optc.proof.reference.histograms import BINS, Float64, MagnitudeHistogram

#: Share of the values that are not clipped. On small vision models 0.999 is too tight.
_SHARE = 0.9999
#: Steps of int8 on one side of zero.
_STEPS = 127
#: Ranges that are tried, evenly spaced up to the limit of the histogram.
_TRIED = 256


def by_largest(histogram: MagnitudeHistogram) -> float:
    """The largest magnitude: nothing is clipped."""
    return histogram.largest


def by_percentile(histogram: MagnitudeHistogram) -> float:
    """The magnitude that 99.99 % of the values do not exceed, rounded up to a bin's end."""
    sums = np.cumsum(histogram.counts)
    last = int(np.searchsorted(sums, _SHARE * sums[-1]))
    return _within(histogram, (last + 1) * histogram.limit / BINS)


def by_square(histogram: MagnitudeHistogram) -> float:
    """The range of the least mean squared error in 127 steps and a sign."""
    centers = (np.arange(BINS) + 0.5) * (histogram.limit / BINS)

    def error(clip: float) -> float:
        step = clip / _STEPS
        near = np.minimum(np.rint(centers / step), _STEPS) * step
        return float(histogram.counts @ np.square(centers - near))

    return _least(histogram, error)


def by_entropy(histogram: MagnitudeHistogram) -> float:
    """The range whose quantized distribution has the least divergence from the clipped one (Migacz,
    8-bit inference with TensorRT, 2017).

    The first bin is left out: the many zeros behind a ReLU are exact at any range, and would draw
    it to next to nothing.
    """
    counts = histogram.counts.copy()
    counts[0] = 0.0

    def divergence(clip: float) -> float:
        bins = max(_STEPS + 1, round(clip / histogram.limit * BINS))
        clipped = counts[:bins].copy()
        clipped[-1] += counts[bins:].sum()
        return _divergence(clipped, _merged(counts[:bins]))

    return _least(histogram, divergence) if counts.any() else histogram.largest


METHODS: dict[str, Callable[[MagnitudeHistogram], float]] = {
    "max": by_largest,
    "percentile": by_percentile,
    "mse": by_square,
    "entropy": by_entropy,
}


def _merged(counts: Float64) -> Float64:
    """The counts as 128 levels have them: the bins of a level that hold anything share evenly."""
    level = np.arange(len(counts)) * (_STEPS + 1) // len(counts)
    filled = counts > 0
    totals = np.bincount(level, counts, _STEPS + 1)
    bins = np.bincount(level, filled, _STEPS + 1)
    return np.where(filled, totals[level] / np.maximum(bins[level], 1), 0.0)


def _divergence(true: Float64, approximate: Float64) -> float:
    """Kullback-Leibler divergence of counts; what is true and has no approximation counts as though
    one thousandth of a value were there."""
    p, q = true / true.sum(), np.maximum(approximate, 1e-3)
    q /= q.sum()
    some = p > 0
    return float(np.sum(p[some] * np.log(p[some] / q[some])))


def _least(histogram: MagnitudeHistogram, cost: Callable[[float], float]) -> float:
    """The clip of the least cost, the largest magnitude among them; the larger one of equals."""
    tried = histogram.limit * np.arange(_TRIED // 8, _TRIED) / _TRIED
    clips = [histogram.largest, *(one for one in tried[::-1] if one < histogram.largest)]
    return float(min(clips, key=cost)) if histogram.largest else 0.0


def _within(histogram: MagnitudeHistogram, clip: float) -> float:
    return min(clip, histogram.largest)
