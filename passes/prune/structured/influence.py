"""The block influence of sub-layers: how much they turn the residual stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optc.passes.prune.structured.sublayers import SubLayer
from optc.proof.reference.observers import BlockValues, Watcher
from optc.proof.reference.partition import Block
from optc.runtime.executable.executable import Int32
from optc.system.hardware.target import usable_threads


def influences(model: ir.Model, tokens: Int32, sublayers: Sequence[SubLayer]) -> list[float]:
    """One minus the mean cosine of what each sub-layer's result is added to and the sum.

    Args:
        model: Dense form; it is not changed.
        tokens: Windows [W, S].
        sublayers: Its.
    """
    from optc.proof.reference.blockwise import observe  # brings ONNX Runtime

    watcher = _Influence(sublayers)
    observe(model, tokens, [watcher], usable_threads())
    return watcher.means()


class _Influence(Watcher):
    """Sums cosines, for each sub-layer."""

    def __init__(self, sublayers: Sequence[SubLayer]) -> None:
        self._pairs = [(_other(one), one.add.outputs[0]) for one in sublayers]
        self._sums = [(0.0, 0)] * len(self._pairs)

    def watched(self, block: Block) -> Sequence[ir.Value]:
        """Both values of the sub-layers of the block."""
        made = {block.source, *(value for node in block.nodes for value in node.outputs)}
        return [value for pair in self._pairs if set(pair) <= made for value in pair]

    def on_values(self, seen: BlockValues) -> None:
        """Add the cosines of a chunk."""
        for index, (before, after) in enumerate(self._pairs):
            if before in seen.values and after in seen.values:
                left, right = (seen.values[v].astype(np.float64) for v in (before, after))
                lengths = np.linalg.norm(left, axis=-1) * np.linalg.norm(right, axis=-1)
                cosines = (left * right).sum(axis=-1) / np.maximum(lengths, 1e-30)
                total, count = self._sums[index]
                self._sums[index] = total + float(cosines.sum()), count + cosines.size

    def means(self) -> list[float]:
        """One minus the mean cosine of each."""
        return [1.0 - total / count for total, count in self._sums]


def _other(one: SubLayer) -> ir.Value:
    """The value that the sub-layer's result is added to."""
    other = one.add.inputs[1 - list(one.add.inputs).index(one.term)]
    if other is None:
        raise ValueError(f"{one.add.name}: a sum of one operand")
    return other
