"""Take a part of a model out as an ONNX model of its own, and open it in ONNX Runtime (CPU)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from optc.gates.partition import is_constant

Array = npt.NDArray[Any]

#: Initializers of more elements than this stay outside the sub-model (weights); smaller ones may
#: be constants that operators need at session creation.
INLINE_ELEMENTS = 1024


@dataclass(frozen=True)
class SubModel:
    """A part of a model.

    Attributes:
        model: The part; its graph inputs are the cut values, then the weights.
        weights: The weight values of the original model, in input order.
    """

    model: ir.Model
    weights: tuple[ir.Value, ...]


#: Makes the copy of a node from the copies of its operands.
Copier = Callable[[ir.Node, list[ir.Value | None]], ir.Node]


def copy_node(node: ir.Node, operands: list[ir.Value | None]) -> ir.Node:
    """The same node over other operands, outputs named alike."""
    outputs = [ir.Value(name=v.name, type=v.type, shape=v.shape) for v in node.outputs]
    return ir.Node(
        node.domain,
        node.op_type,
        operands,
        node.attributes.values(),
        overload=node.overload,
        outputs=outputs,
        name=node.name,
    )


def extract(
    model: ir.Model,
    nodes: Iterable[ir.Node],
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    *,
    copier: Copier = copy_node,
) -> SubModel:
    """The nodes as a model from ``inputs`` to ``outputs``; constants they read come along.

    Args:
        model: Where they come from; gives functions and opsets.
        nodes: In topological order.
        inputs: Values that the part is given.
        outputs: Values that the part returns.
        copier: How a node is copied, to put other operators in.
    """
    copies: dict[int, ir.Value] = {id(v): _input(v) for v in inputs}
    inline: list[ir.Value] = []
    weights: list[ir.Value] = []
    body: list[ir.Node] = []

    def constant(value: ir.Value) -> ir.Value:
        copy = _input(value)
        if _elements(value) > INLINE_ELEMENTS:
            weights.append(value)
        elif value.const_value is not None:
            array = value.const_value.numpy()
            copy.const_value = ir.Tensor(array, dtype=value.const_value.dtype, name=value.name)
            inline.append(copy)
        return copy

    def operand(value: ir.Value | None) -> ir.Value | None:
        if value is None:
            return None
        if id(value) not in copies:
            producer = value.producer()
            if value.is_initializer():
                copies[id(value)] = constant(value)
            elif producer is not None and is_constant(value):
                emit(producer)
            else:
                raise ValueError(f"the part reads {value.name}, which it is not given")
        return copies[id(value)]

    def emit(node: ir.Node) -> None:
        made = copier(node, [operand(v) for v in node.inputs])
        body.append(made)
        copies.update((id(v), c) for v, c in zip(node.outputs, made.outputs, strict=False))

    for node in nodes:
        if not any(id(v) in copies for v in node.outputs):
            emit(node)
    graph = ir.Graph(
        [*(copies[id(v)] for v in inputs), *(copies[id(v)] for v in weights)],
        [copies[id(v)] for v in outputs],
        nodes=body,
        initializers=inline,
        opset_imports=dict(model.opset_imports),
        name="part",
    )
    part = ir.Model(graph, ir_version=model.ir_version, functions=list(model.functions.values()))
    return SubModel(part, tuple(weights))


def _input(value: ir.Value) -> ir.Value:
    tensor = value.const_value
    if tensor is not None:
        shape = ir.Shape(tensor.shape.numpy())
        return ir.Value(name=value.name, type=ir.TensorType(tensor.dtype), shape=shape)
    kind = value.type or ir.TensorType(ir.DataType.FLOAT)
    return ir.Value(name=value.name, type=kind, shape=value.shape)


def _elements(value: ir.Value) -> int:
    return int(value.const_value.size) if value.const_value is not None else 0


def float_weight(value: ir.Value) -> Array:
    """The weight in the orientation that the graph sees, C-contiguous, in its own type."""
    if value.const_value is None:
        raise ValueError(f"{value.name} has no value")
    return np.ascontiguousarray(value.const_value.numpy())


def open_session(model: ir.Model | str, threads: int) -> ort.InferenceSession:
    """An ONNX Runtime session on CPU that gives memory back and leaves no thread spinning.

    Args:
        model: A model without external data, or the path of a file.
        threads: Threads within an operator.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    # Threads that spin after a run would slow the engine that is measured next to it.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    content = model if isinstance(model, str) else ir.to_proto(model).SerializeToString()
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run_session(session: ort.InferenceSession, feeds: dict[str, Array]) -> list[Array]:
    """Run with arrays by name; inputs are not copied, and outputs own their memory.

    The feeds stay referenced until the run is over: ONNX Runtime keeps no reference to them.
    """
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
    results = session.run_with_ort_values(None, values)
    return [result.numpy().copy() for result in results]
