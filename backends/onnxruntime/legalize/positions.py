"""Rotary tables by position: what the model computes from ``positions``, computed once."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from optc.ir.functions import attributes_of
from optc.ir.graph import add_initializer, is_constant
from optc.ir.weights import Array


class RotaryTables:
    """Cosines and sines of all positions as initializers, where they depend on nothing else.

    Args:
        model: In slot form, or a ragged step; gets the tables.
        positions: How many.
    """

    def __init__(self, model: ir.Model, positions: int) -> None:
        self._model = model
        self._positions = positions
        self._input = next(v for v in model.graph.inputs if v.name == "positions")
        self._tables: dict[ir.Value, ir.Value] = {}

    def of(self, q: ir.Node, k: ir.Node) -> list[ir.Value] | None:
        """The tables [positions, r/2] by which both rotary embeddings turn; None if they differ in
        anything, or the tables do not follow from positions alone."""
        tables = q.inputs[1:3]
        names = ("rotary_embedding_dim", "interleaved")
        options = [{name: attributes_of(n).get(name) for name in names} for n in (q, k)]
        if list(tables) != list(k.inputs[1:3]) or options[0] != options[1]:
            return None
        found = [self.table(value) for value in tables if value is not None]
        return [table for table in found if table is not None] if all(found) else None

    def table(self, value: ir.Value) -> ir.Value | None:
        """``value`` of all positions as an initializer [positions, r/2]; None if it depends on
        anything else."""
        if value not in self._tables:
            if not self._follows_from_positions(value):
                return None
            name = f"{value.name}.table"
            table = ir.tensor(self._evaluate(value), name=name)
            self._tables[value] = add_initializer(self._model.graph, table, name)
        return self._tables[value]

    def _follows_from_positions(self, value: ir.Value) -> bool:
        """Standard operators compute it from positions and constants."""
        wanted = [value]
        while wanted:
            current = wanted.pop()
            node = current.producer()
            if current is self._input or is_constant(current):
                continue
            if node is None or node.domain:
                return False
            wanted += [v for v in node.inputs if v is not None]
        return True

    def _evaluate(self, value: ir.Value) -> Array:
        """``value`` [(1,) positions, r/2] for all positions in order, as [positions, r/2]."""
        graph = ir.convenience.extract(self._model.graph, [self._input], [value])
        model = ir.Model(graph, ir_version=self._model.ir_version)
        session = ort.InferenceSession(
            ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
        )
        rank = 1 if self._input.shape is None else len(self._input.shape)
        positions = np.arange(self._positions, dtype=np.int32).reshape((1,) * (rank - 1) + (-1,))
        result: Array = session.run(None, {"positions": positions})[0]
        return np.ascontiguousarray(result.reshape(self._positions, -1))
