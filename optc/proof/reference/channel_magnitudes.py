"""Magnitudes of the channels of activations over a text, seen while the reference runs once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.proof.reference.observers import BlockValues, Watcher
from optc.proof.reference.partition import Block

Float64 = npt.NDArray[np.float64]


@dataclass
class Magnitudes:
    """Of one value [..., K] over some tokens.

    Attributes:
        total: [K] sums of magnitudes.
        largest: [K] largest magnitudes.
        tokens: How many tokens.
    """

    total: Float64
    largest: Float64
    tokens: int = 0

    @property
    def mean(self) -> Float64:
        """[K] mean magnitudes."""
        mean: Float64 = self.total / self.tokens
        return mean


class ChannelObserver(Watcher):
    """Keeps the mean and the largest magnitude of each channel of some values.

    Args:
        values: Which ones.

    Attributes:
        found: By value; those of no block are not in it.
    """

    def __init__(self, values: Iterable[ir.Value]) -> None:
        self._wanted = dict.fromkeys(values)
        self._seen: dict[ir.Value, Block] = {}
        self.found: dict[ir.Value, Magnitudes] = {}

    def watched(self, block: Block) -> Sequence[ir.Value]:
        """Those of the values that the block reads or makes and that no block before it had."""
        made = [block.source, *(value for node in block.nodes for value in node.outputs)]
        wanted = [value for value in made if value in self._wanted]
        return [value for value in wanted if self._seen.setdefault(value, block) is block]

    def on_values(self, seen: BlockValues) -> None:
        """Add a chunk's magnitudes."""
        for value, array in seen.values.items():
            size = np.abs(array.reshape(-1, array.shape[-1]))
            zeros = np.zeros((2, size.shape[1]))
            kept = self.found.setdefault(value, Magnitudes(zeros[0], zeros[1]))
            kept.total += size.sum(axis=0, dtype=np.float64)
            np.maximum(kept.largest, size.max(axis=0), out=kept.largest)
            kept.tokens += len(size)
