"""The largest magnitudes of activations over a text, seen while the reference runs once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from optc.proof.reference.observers import BlockValues, Watcher
from optc.proof.reference.partition import Block


class RangeObserver(Watcher):
    """Keeps the largest magnitude of some values.

    Args:
        values: Which ones; those of no block stay at 0.

    Attributes:
        ranges: The largest magnitude so far, by value.
    """

    def __init__(self, values: Iterable[ir.Value]) -> None:
        self.ranges = dict.fromkeys(values, 0.0)

    def watched(self, block: Block) -> Sequence[ir.Value]:
        """Those of the values that the block reads or makes."""
        made = [block.source, *(value for node in block.nodes for value in node.outputs)]
        return [value for value in made if value in self.ranges]

    def on_values(self, seen: BlockValues) -> None:
        """Compare a chunk's magnitudes with the largest so far."""
        for value, array in seen.values.items():
            self.ranges[value] = max(self.ranges[value], float(np.abs(array).max()))
