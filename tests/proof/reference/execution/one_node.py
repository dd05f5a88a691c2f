"""Models of one node, and what both executors make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from optc.ir.functions import DOMAIN, make_node
from optc.ir.weights import LazyWeight
from optc.proof.reference.execution.torch_part import TorchPart
from optc.proof.reference.submodel import extract, open_session, run_session

Array = np.ndarray[Any, Any]


def lazy(rows: Array) -> LazyWeight:
    """A weight that the graph sees transposed."""
    return LazyWeight(
        lambda start, stop: rows[start:stop], rows.shape, ir.DataType.FLOAT, "w", transposed=True
    )


def one_node(
    op: tuple[str, str],
    operands: Sequence[Array | LazyWeight | ir.Tensor | None],
    attributes: Mapping[str, Any],
    outputs: int = 1,
    kind: ir.DataType = ir.DataType.FLOAT,
) -> tuple[ir.Model, list[Array]]:
    """The model, and what its inputs are given: arrays are inputs, tensors are initializers."""
    model = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 23}), ir_version=10)
    values: list[ir.Value | None] = []
    given = []
    for place, operand in enumerate(operands):
        if operand is None:
            values.append(None)
            continue
        tensor = ir.Tensor(operand) if isinstance(operand, np.ndarray) else operand
        value = ir.Value(name=f"v{place}", type=ir.TensorType(tensor.dtype))
        if isinstance(operand, np.ndarray):
            model.graph.inputs.append(value)
            given.append(operand)
        else:
            value.const_value, value.shape = tensor, ir.Shape(tensor.shape.numpy())
            model.graph.register_initializer(value)
        values.append(value)
    domain, name = op
    if domain == DOMAIN:
        node = make_node(model, name, values, dict(attributes))
    else:
        node = ir.node(name, values, attributes, num_outputs=outputs)
    for index, value in enumerate(node.outputs):
        value.name = f"out{index}"
        value.type = value.type or ir.TensorType(kind)
    model.graph.append(node)
    model.graph.outputs.extend(node.outputs)
    return model, given


def both(model: ir.Model, given: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """The results of PyTorch and of ONNX Runtime."""
    graph = model.graph
    operands = (model, list(graph), list(graph.inputs), list(graph.outputs))
    part = extract(*operands)
    names = [value.name or "" for value in graph.inputs]
    session = open_session(part.model, 1)
    theirs = run_session(session, part.feeds() | dict(zip(names, given, strict=True)))
    return TorchPart(*operands, 1, "cpu").run(given), theirs
