"""Append operators to a graph, with names, types and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from optc.ir.graph import add_initializer

Dims = Sequence[int | str]


class Emitter:
    """Nodes in the place of others; the caller inserts `nodes`.

    Args:
        graph: Gets constants.
        prefix: What names of nodes and values begin with.
    """

    def __init__(self, graph: ir.Graph, prefix: str) -> None:
        self._graph = graph
        self._prefix = prefix
        self.nodes: list[ir.Node] = []

    def op(
        self,
        label: str,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        dims: Dims | None,
        dtype: ir.DataType = ir.DataType.FLOAT,
        *,
        domain: str = "",
        **attributes: Any,
    ) -> ir.Value:
        """Append an operator of one output; returns that."""
        node = ir.Node(
            domain,
            op_type,
            list(inputs),
            ir.convenience.convert_attributes(attributes),
            name=f"{self._prefix}.{label}",
        )
        value = node.outputs[0]
        value.name, value.type = f"{self._prefix}.{label}", ir.TensorType(dtype)
        value.shape = None if dims is None else ir.Shape(dims)
        self.nodes.append(node)
        return value

    def integers(self, label: str, values: Sequence[int]) -> ir.Value:
        """A constant int64 vector."""
        return self.constant(label, np.array(values, np.int64))

    def constant(self, label: str, array: np.ndarray[Any, Any]) -> ir.Value:
        """A constant of any type."""
        name = f"{self._prefix}.{label}"
        return add_initializer(self._graph, ir.tensor(array, name=name), name)


def dims_of(value: ir.Value) -> list[int | str] | None:
    """Dimensions as they are stated; None if there is no shape."""
    if value.shape is None:
        return None
    return [dim if isinstance(dim, int) else str(dim) for dim in value.shape]
