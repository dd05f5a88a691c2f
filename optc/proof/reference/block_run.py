"""One block of a cut model, open with its weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from optc.ir.weights import Array
from optc.proof.reference.execution.part import open_part
from optc.proof.reference.partition import Block, Partition
from optc.proof.reference.pieces import block_inputs
from optc.proof.reference.running.rows import join_rows, split_rows


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
        self._read = [v.name or "" for v in block_inputs(block, parts)[len(block.given) :]]
        self.share(shared)
        made = {value for node in block.nodes for value in node.outputs}
        strange = [v.name for v in watched if v not in made and v not in block.given]
        if strange:
            raise ValueError(f"{', '.join(map(str, strange))}: not values of this block")
        self._watched = list(watched)
        wanted = dict.fromkeys((*block.gives, *watched))
        self._outputs = [value for value in wanted if value not in block.given]
        inputs = block_inputs(block, parts)
        self._part = open_part(model, block.nodes, inputs, self._outputs, threads)

    def share(self, shared: Mapping[str, Array]) -> None:
        """Take values that all blocks read, by name, for chunks of another size."""
        self._shared = {name: shared[name] for name in self._read}

    def run(self, hidden: Array) -> tuple[Array, dict[ir.Value, Array]]:
        """The results [w, S, D + …] for what the block is given [w, S, D + …] (`rows`), and the
        watched values."""
        given = {
            value: np.ascontiguousarray(array)
            for value, array in split_rows(hidden, self._block.given).items()
        }
        shared = (self._shared[name][: len(hidden)] for name in self._read)
        results = self._part.run([*given.values(), *shared])
        seen = dict(zip(self._outputs, results, strict=True)) | given
        return join_rows(seen, self._block.gives), {value: seen[value] for value in self._watched}

    def replace(self, weights: Mapping[ir.Value, Array]) -> None:
        """Give weights other contents, in the layout that `BlockObserver.rewrite` states.

        Raises:
            ValueError: Not a weight of the block, or another shape.
        """
        self._part.replace(weights)

    def restore(self, weights: Iterable[ir.Value]) -> None:
        """Give weights their own contents again."""
        self._part.restore(weights)
