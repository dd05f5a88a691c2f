"""Histograms of activations' magnitudes, seen while the reference runs once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.proof.reference.observers import BlockValues, Watcher
from optc.proof.reference.partition import Block
from optc.proof.reference.submodel import Array

Float64 = npt.NDArray[np.float64]
#: Bins of a histogram: an even number.
BINS = 2048


class MagnitudeHistogram:
    """Counts of |x| in equal bins from 0 to a limit, which doubles when a value is beyond it.

    The limit is a power of two, so that the result does not depend on the order of the values.

    Attributes:
        counts: [BINS] float64.
        limit: Upper end of the last bin; 0 while only zeros were seen.
        largest: The largest magnitude so far.
    """

    def __init__(self) -> None:
        self.counts: Float64 = np.zeros(BINS)
        self.limit = self.largest = 0.0

    def add(self, values: Array) -> None:
        """Count the magnitudes of ``values``."""
        magnitudes = np.abs(values, dtype=np.float32).ravel()
        largest = float(magnitudes.max(initial=0.0))
        self.largest = max(self.largest, largest)
        if largest and not self.limit:
            self.limit = 2.0 ** math.floor(math.log2(largest) + 1)
        while largest >= self.limit > 0:
            self.counts[: BINS // 2] = self.counts[::2] + self.counts[1::2]
            self.counts[BINS // 2 :] = 0.0
            self.limit *= 2
        found = (magnitudes * np.float32(BINS / (self.limit or 1.0))).astype(np.int64)
        self.counts += np.bincount(found, minlength=BINS)


class HistogramObserver(Watcher):
    """Keeps histograms of the magnitudes of some values.

    Args:
        values: Which ones.

    Attributes:
        histograms: By value.
    """

    def __init__(self, values: Iterable[ir.Value]) -> None:
        self.histograms = {value: MagnitudeHistogram() for value in values}

    def watched(self, block: Block) -> Sequence[ir.Value]:
        """Those of the values that the block reads or makes."""
        made = [block.source, *(value for node in block.nodes for value in node.outputs)]
        return [value for value in made if value in self.histograms]

    def on_values(self, seen: BlockValues) -> None:
        """Count a chunk's magnitudes.

        A value between two blocks is shown by both, and counts twice: shares stay the same.
        """
        for value, array in seen.values.items():
            self.histograms[value].add(array)
