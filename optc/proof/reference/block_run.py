"""One block of a cut model, open in ONNX Runtime with its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from optc.proof.reference.partition import Block, Partition
from optc.proof.reference.pieces import block_inputs
from optc.proof.reference.submodel import Array, extract, open_session, run_session


class BlockRun:
    """Runs a block over chunks of windows; holds its weights in float32.

    Args:
        model: The model that the block is of.
        parts: Its pieces.
        block: The block.
        shared: Values that all blocks read, by name, for a full chunk of windows.
        watched: Values of the block that every run gives beside its result.
        threads: Threads of ONNX Runtime.

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
        part = extract(model, block.nodes, block_inputs(block, parts), self._outputs)
        self._weights = {id(value): value.name or "" for value in part.weights}
        self._feeds = part.feeds()
        self._session = open_session(part.model, threads)

    def share(self, shared: Mapping[str, Array]) -> None:
        """Take values that all blocks read, by name, for chunks of another size."""
        self._shared = {name: shared[name] for name in self._read}

    def run(self, hidden: Array) -> tuple[Array, dict[ir.Value, Array]]:
        """The block's result [w, S, D] for hidden states [w, S, D], and the watched values."""
        given = np.ascontiguousarray(hidden)
        feeds = {name: array[: len(given)] for name, array in self._shared.items()}
        feeds[self._block.source.name or ""] = given
        results = run_session(self._session, self._feeds | feeds)
        seen = dict(zip(self._outputs, results, strict=True)) | {self._block.source: given}
        return results[0], {value: seen[value] for value in self._watched}

    def replace(self, weights: Mapping[ir.Value, Array]) -> None:
        """Give weights other contents, in the layout that `BlockObserver.rewrite` states.

        Raises:
            ValueError: Not a weight of the block, or another shape.
        """
        for value, array in weights.items():
            name = self._weights.get(id(value))
            if name is None:
                raise ValueError(f"{value.name}: not a weight of this block")
            if array.shape != self._feeds[name].shape:
                raise ValueError(
                    f"{value.name}: shape {array.shape}, not {self._feeds[name].shape}"
                )
            self._feeds[name] = np.ascontiguousarray(array, np.float32)
