"""Ranges of values that become integers of 8 bits: how much of few extreme values is clipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.proof.reference.tensor_samples import Sample
from optc.proof.reference.tensor_values import Array, ValueRun

Float64 = npt.NDArray[np.float64]
#: Integers between the ends of a range.
STEPS = 255
_BINS = 2048
#: Share of the values that are not clipped.
_SHARE = 0.9999
#: Shares of an end of a range that are tried.
_TRIED = np.linspace(1.0, 0.2, 81)


@dataclass(frozen=True)
class Range:
    """Ends of a range, which holds 0: ``low`` ≤ 0 ≤ ``high``."""

    low: float
    high: float


@dataclass
class ValueHistogram:
    """Counts of values in equal bins between their ends, 0 among these."""

    low: float = 0.0
    high: float = 0.0
    counts: Float64 | None = None

    def widen(self, array: Array) -> None:
        """Take in the ends of ``array``; values that are not finite are left out."""
        finite = array[np.isfinite(array)]
        self.low = min(self.low, float(finite.min(initial=0.0)))
        self.high = max(self.high, float(finite.max(initial=0.0)))

    def add(self, array: Array) -> None:
        """Count ``array``, whose ends are known."""
        found, _ = np.histogram(array[np.isfinite(array)], _BINS, self._span)
        self.counts = found.astype(np.float64) if self.counts is None else self.counts + found

    @property
    def _span(self) -> tuple[float, float]:
        return (self.low, self.high if self.high > self.low else self.low + 1.0)

    @property
    def zero(self) -> int:
        """Number of the bin that 0 is counted in."""
        return int(np.histogram([0.0], _BINS, self._span)[0].argmax())

    def centers(self) -> Float64:
        """Centers of the bins."""
        edges = np.linspace(*self._span, _BINS + 1)
        return (edges[1:] + edges[:-1]) / 2


def by_ends(seen: ValueHistogram) -> Range:
    """All values: nothing is clipped."""
    return Range(seen.low, seen.high)


def by_percentile(seen: ValueHistogram) -> Range:
    """The range that leaves out one value in ten thousand, half of them on each side."""
    if seen.counts is None or not seen.counts.sum():
        return by_ends(seen)
    shares = np.cumsum(seen.counts) / seen.counts.sum()
    rest, centers = (1 - _SHARE) / 2, seen.centers()
    low = centers[int(np.searchsorted(shares, rest))]
    high = centers[int(np.searchsorted(shares, 1 - rest))]
    return Range(min(0.0, float(low)), max(0.0, float(high)))


def by_square(seen: ValueHistogram) -> Range:
    """The range of the least mean squared error."""

    def error(ends: Range) -> float:
        centers = seen.centers()
        step = max((ends.high - ends.low) / STEPS, 1e-30)
        near = np.clip(np.rint(centers / step), np.rint(ends.low / step), np.rint(ends.high / step))
        return float((seen.counts * np.square(centers - near * step)).sum())

    return _least(seen, error)


def by_entropy(seen: ValueHistogram) -> Range:
    """The range whose quantized distribution has the least divergence from the clipped one (Migacz,
    8-bit inference with TensorRT, 2017).

    The bin of 0 is left out: the many zeros behind a ReLU are exact at any range.
    """
    if seen.counts is None:
        return by_ends(seen)
    centers, counts = seen.centers(), seen.counts.copy()
    counts[seen.zero] = 0.0
    if not counts.any():
        return by_ends(seen)

    def divergence(ends: Range) -> float:
        inside = np.flatnonzero((centers >= ends.low) & (centers <= ends.high))
        kept = counts[inside[0] : inside[-1] + 1]
        clipped = kept.copy()
        clipped[0] += counts[: inside[0]].sum()
        clipped[-1] += counts[inside[-1] + 1 :].sum()
        return _divergence(clipped, _merged(kept))

    return _least(seen, divergence)


METHODS: dict[str, Callable[[ValueHistogram], Range]] = {
    "min-max": by_ends,
    "percentile": by_percentile,
    "mse": by_square,
    "entropy": by_entropy,
}


def observe_ranges(
    model: ir.Model, values: Iterable[ir.Value], samples: Sequence[Sample], method: str
) -> Mapping[str, Range]:
    """The ranges of ``values`` by name, over all samples, by a method of `METHODS`."""
    run = ValueRun(model, values)
    seen: dict[str, ValueHistogram] = {}
    run.over(samples, lambda name, array: seen.setdefault(name, ValueHistogram()).widen(array))
    if method != "min-max":
        run.over(samples, lambda name, array: seen[name].add(array))
    return {name: METHODS[method](one) for name, one in seen.items()}


def _least(seen: ValueHistogram, cost: Callable[[Range], float]) -> Range:
    """The range of the least cost, one end after the other drawn in; the wider one of equals."""
    high = min((seen.high * share for share in _TRIED), key=lambda one: cost(Range(seen.low, one)))
    low = min((seen.low * share for share in _TRIED), key=lambda one: cost(Range(one, high)))
    return Range(low, high)


def _merged(counts: Float64) -> Float64:
    """The counts as 256 levels have them: the bins of a level that hold anything share evenly."""
    level = np.arange(len(counts)) * (STEPS + 1) // len(counts)
    filled = counts > 0
    totals = np.bincount(level, counts, STEPS + 1)
    bins = np.bincount(level, filled, STEPS + 1)
    return np.where(filled, totals[level] / np.maximum(bins[level], 1), 0.0)


def _divergence(true: Float64, approximate: Float64) -> float:
    """Kullback-Leibler divergence of counts; what is true and has no approximation counts as though
    one thousandth of a value were there."""
    if not true.sum():
        return np.inf
    p, q = true / true.sum(), np.maximum(approximate, 1e-3)
    q /= q.sum()
    some = p > 0
    return float(np.sum(p[some] * np.log(p[some] / q[some])))
