"""A part of a model in ONNX Runtime: the oracle of the one in PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from optc.ir.weights import Array
from optc.proof.reference.submodel import extract, open_session, run_session, weight_array


class OnnxPart:
    """Some nodes in ONNX Runtime on the CPU (a `Part`).

    Args:
        model: The model that they are of.
        nodes: In topological order.
        inputs: Values that every run is given.
        outputs: Values that it gives.
        threads: Threads of ONNX Runtime.
    """

    def __init__(
        self,
        model: ir.Model,
        nodes: Iterable[ir.Node],
        inputs: Sequence[ir.Value],
        outputs: Sequence[ir.Value],
        threads: int,
    ) -> None:
        part = extract(model, nodes, inputs, outputs)
        graph = part.model.graph
        if any(value.is_initializer() for value in inputs):  # given in tiles
            _forget_shapes(graph)
        for value, copy in zip(inputs, list(graph.inputs), strict=False):
            if (
                value.is_initializer()
                and len(value.const_value.shape if value.const_value else ()) == 2
            ):
                _take_rows(graph, copy)
        self._names = [value.name or "" for value in inputs]
        self._weights = {value: value.name or "" for value in part.weights}
        self._feeds = part.feeds()
        self._session = open_session(part.model, threads)

    def hold(self, array: Array) -> Array:
        """The array itself."""
        return np.ascontiguousarray(array)

    def run(self, given: Sequence[Array]) -> list[Array]:
        """The outputs of the inputs."""
        arrays = [np.ascontiguousarray(one) for one in given]
        return run_session(self._session, self._feeds | dict(zip(self._names, arrays, strict=True)))

    def replace(self, weights: Mapping[ir.Value, Array]) -> None:
        """Give weights other contents, in float32.

        Raises:
            ValueError: Not a weight of the part, or another shape.
        """
        for value, array in weights.items():
            name = self._weights.get(value)
            if name is None:
                raise ValueError(f"{value.name}: not a weight of this block")
            known = self._feeds[name].shape
            if array.shape != known:
                raise ValueError(f"{value.name}: shape {array.shape}, not {known}")
            self._feeds[name] = np.ascontiguousarray(array, np.float32)

    def restore(self, weights: Iterable[ir.Value]) -> None:
        """Give weights their own contents again."""
        for value in weights:
            self._feeds[self._weights[value]] = weight_array(value, by_rows=True)


def _forget_shapes(graph: ir.Graph) -> None:
    """A value per entry of the vocabulary is now one per entry of a tile."""
    for value in (*graph.inputs, *(v for node in graph for v in node.outputs)):
        value.shape = None


def _take_rows(graph: ir.Graph, weight: ir.Value) -> None:
    """Let a weight, an input of the graph, be rows."""
    readers = list(weight.uses())
    transpose = ir.node("Transpose", [weight], {"perm": [1, 0]})
    graph.insert_before(graph[0], transpose)
    for use in readers:
        use.node.replace_input_with(use.idx, transpose.outputs[0])
