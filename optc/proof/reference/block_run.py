"""One block of a cut model, open with its weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from optc.ir.weights import Array
from optc.proof.reference.execution.part import open_part
from optc.proof.reference.partition import Block, Partition
from optc.proof.reference.pieces import block_inputs


class BlockRun:
    """Runs a block over chunks of windows; holds its weights in float32.

    Args:
        model: The model that the block is of.
        parts: Its pieces.
        block: The block.
        shared: Values that all blocks read, by name, for a full chunk of windows.
        watched: Values of the block that every run gives beside its result.
        threads: Threads of a CPU.

    Raises:
        ValueError: A watched value is none of the block's.
    """

    def __init__(
        self,
        model: ir.Model,
        parts: Partition,
        block: Block,
        shared: dict[str, Array],
        watched: Sequence[ir.Value],
        threads: int,
    ) -> None:
        self._block = block
        self._read = [v.name or "" for v in block_inputs(block, parts)[1:]]
        self.share(shared)
        made = {value for node in block.nodes for value in node.outputs}
        strange = [v.name for v in watched if v not in made and v is not block.source]
        if strange:
            raise ValueError(f"{', '.join(map(str, strange))}: not values of this block")
        self._watched = list(watched)
        inner = [v for v in watched if v not in (block.source, block.result)]
        self._outputs = [block.result, *inner]
        inputs = block_inputs(block, parts)
        self._part = open_part(model, block.nodes, inputs, self._outputs, threads)

    def share(self, shared: Mapping[str, Array]) -> None:
        """Take values that all blocks read, by name, for chunks of another size."""
        self._shared = {name: shared[name] for name in self._read}

    def run(self, hidden: Array) -> tuple[Array, dict[ir.Value, Array]]:
        """The block's result [w, S, D] for hidden states [w, S, D], and the watched values."""
        given = np.ascontiguousarray(hidden)
        shared = (self._shared[name][: len(given)] for name in self._read)
        results = self._part.run([given, *shared])
        seen = dict(zip(self._outputs, results, strict=True)) | {self._block.source: given}
        return results[0], {value: seen[value] for value in self._watched}

    def replace(self, weights: Mapping[ir.Value, Array]) -> None:
        """Give weights other contents, in the layout that `BlockObserver.rewrite` states.

        Raises:
            ValueError: Not a weight of the block, or another shape.
        """
        self._part.replace(weights)

    def restore(self, weights: Iterable[ir.Value]) -> None:
        """Give weights their own contents again."""
        self._part.restore(weights)
