"""How large activations become on a text: one pass of the float32 reference, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from optc.gates.partition import Block
from optc.gates.pieces import block_inputs
from optc.gates.reference import BlockwiseReference
from optc.gates.submodel import Array, extract, open_session, run_session
from optc.runtime.executable import Float32, Int32


def activation_ranges(
    model: ir.Model, values: Iterable[ir.Value], tokens: Int32, threads: int
) -> dict[ir.Value, float]:
    """The largest magnitude of each of ``values`` over windows of tokens [W, S].

    Memory holds one layer in float32 and the hidden states, never the model or its activations.

    Args:
        model: Dense form.
        values: Computed within its layers, or the head's input.
        tokens: Windows; each starts at position 0.
        threads: Threads of ONNX Runtime.

    Raises:
        optc.errors.UnsupportedError: The model cannot be cut at its layers.
    """
    observer = _Observer(model, values, threads)
    try:
        hidden = observer.hidden_states(tokens)
        head = observer.head_input
        if head in observer.ranges:
            observer.ranges[head] = float(np.abs(hidden).max())
        return observer.ranges
    finally:
        observer.close()


class _Observer(BlockwiseReference):
    """The reference, which also looks at values within its blocks."""

    def __init__(self, model: ir.Model, values: Iterable[ir.Value], threads: int) -> None:
        super().__init__(model, threads)
        self.ranges = dict.fromkeys(values, 0.0)

    @property
    def head_input(self) -> ir.Value | None:
        """The last hidden states."""
        return self._parts.head.inputs[0]

    def _run_block(
        self, block: Block, hidden: Float32, shared: dict[str, Array], batch: int
    ) -> None:
        inputs = block_inputs(block, self._parts)
        made = {value for node in block.nodes for value in node.outputs} - {block.result}
        watched = [value for value in self.ranges if value in made]
        part = extract(self._model, block.nodes, inputs, [block.result, *watched])
        session = open_session(part.model, self._threads)
        weights = part.feeds()
        if block.source in self.ranges:
            self._note(block.source, hidden)
        for start in range(0, hidden.shape[0], batch):
            chunk = np.ascontiguousarray(hidden[start : start + batch])
            feeds = {v.name or "": shared[v.name or ""][: len(chunk)] for v in inputs[1:]}
            feeds[block.source.name or ""] = chunk
            result, *seen = run_session(session, weights | feeds)
            hidden[start : start + batch] = result
            for value, array in zip(watched, seen, strict=True):
                self._note(value, array)

    def _note(self, value: ir.Value, array: Array) -> None:
        self.ranges[value] = max(self.ranges[value], float(np.abs(array).max()))
