"""Take a part of a model out as an ONNX model of its own, and open it in ONNX Runtime (CPU)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from optc.ir.experts import first_expert_matmul
from optc.ir.weights import LazyWeight
from optc.proof.reference.partition import is_constant

Array = npt.NDArray[Any]

#: Initializers of more elements than this stay outside the sub-model (weights); smaller ones may be
#: constants that operators need at session creation.
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

    def feeds(self) -> dict[str, Array]:
        """The weights in float32 by input name."""
        return {value.name or "": weight_array(value) for value in self.weights}


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
    extraction = _Extraction(inputs, copier)
    for node in nodes:
        extraction.add(node)
    graph = ir.Graph(
        [*(extraction.copies[id(v)] for v in inputs), *extraction.weight_inputs],
        [extraction.copies[id(v)] for v in outputs],
        nodes=extraction.body,
        initializers=extraction.inline,
        opset_imports=dict(model.opset_imports),
        name="part",
    )
    part = ir.Model(graph, ir_version=model.ir_version, functions=list(model.functions.values()))
    return SubModel(part, tuple(extraction.weights))


class _Extraction:
    """Copies of nodes and values while a part is taken out."""

    def __init__(self, inputs: Sequence[ir.Value], copier: Copier) -> None:
        self.copies: dict[int, ir.Value] = {id(v): _declared(v) for v in inputs}
        self.body: list[ir.Node] = []
        self.inline: list[ir.Value] = []
        self.weights: list[ir.Value] = []
        self.weight_inputs: list[ir.Value] = []
        self._copier = copier

    def add(self, node: ir.Node) -> None:
        """Copy a node, and the constants it reads."""
        if any(id(v) in self.copies for v in node.outputs):
            return
        made = self._copier(node, [self._operand(v) for v in node.inputs])
        self.body.append(made)
        self.copies.update((id(v), c) for v, c in zip(node.outputs, made.outputs, strict=False))

    def _operand(self, value: ir.Value | None) -> ir.Value | None:
        if value is None:
            return None
        if id(value) not in self.copies:
            producer = value.producer()
            if value.is_initializer():
                self.copies[id(value)] = self._initializer(value)
            elif producer is not None and is_constant(value):
                self.add(producer)
            else:
                raise ValueError(f"the part reads {value.name}, which it is not given")
        return self.copies[id(value)]

    def _initializer(self, value: ir.Value) -> ir.Value:
        tensor, copy = _tensor(value), _declared(value)
        if tensor.size <= INLINE_ELEMENTS:
            copy.const_value = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=value.name)
            self.inline.append(copy)
            return copy
        self.weights.append(value)
        self.weight_inputs.append(copy)
        return copy


def _declared(value: ir.Value) -> ir.Value:
    """A value of the same name, type and shape."""
    tensor = value.const_value
    if tensor is not None:
        shape = ir.Shape(tensor.shape.numpy())
        return ir.Value(name=value.name, type=ir.TensorType(tensor.dtype), shape=shape)
    kind = value.type or ir.TensorType(ir.DataType.FLOAT)
    return ir.Value(name=value.name, type=kind, shape=value.shape)


def _tensor(value: ir.Value) -> ir.TensorProtocol:
    if value.const_value is None:
        raise ValueError(f"initializer {value.name} has no value")
    return value.const_value


def weight_array(value: ir.Value) -> Array:
    """An initializer as an array, as the graph sees it."""
    tensor = _tensor(value)
    by_experts = first_expert_matmul(value.consumers()) is not None
    if by_experts and isinstance(tensor, LazyWeight):  # large: never there twice
        columns = np.empty(tensor.shape.numpy(), tensor.dtype.numpy())
        for start, stop in tensor.tiles():
            columns[..., start:stop] = tensor.read_rows(start, stop).T
        return columns
    return np.ascontiguousarray(tensor.numpy())


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
    """Run with arrays by name; inputs are not copied, and outputs hold their memory, which is
    nobody else's.

    The feeds stay referenced until the run is over: ONNX Runtime keeps no reference to them.
    """
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
    results = session.run_with_ort_values(None, values)
    return [result.numpy() for result in results]
