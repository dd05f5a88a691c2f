"""A part of a graph between products of queries and keys and a softmax, and its values.

The part is run on small inputs: what it does to scores is what its numbers say, however it is
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from optc.ir.functions import is_op
from optc.passes.canonicalize.dataflow import dims

Array = npt.NDArray[Any]

#: Operators of which a mask is never made: what they read are the model's own values.
_FOREIGN = ("MatMul", "Gemm", "LayerNormalization", "RMSNormalization", "Conv")
#: Sequences of a probe: more than one, so that batches are told from heads.
BATCH = 2
#: States of an encoder of a probe, beyond its tokens, where their number differs by call.
MORE_STATES = 2


class ForeignError(Exception):
    """Why a part is no attention of ours; the message is the reason."""


class NotRunError(ForeignError):
    """Operators did not take their inputs."""


@dataclass(frozen=True)
class Region:
    """The part of a graph between some values and a result.

    Attributes:
        result: The value that is computed.
        nodes: In topological order; `Shape` of values outside is none of them.
        shapes: Outputs of `Shape` nodes whose operand lies outside, and that operand.
        constants: Initializers that the nodes read.
        inputs: Inputs of the graph that the nodes read.
    """

    result: ir.Value
    nodes: tuple[ir.Node, ...]
    shapes: Mapping[ir.Value, ir.Node]
    constants: tuple[ir.Value, ...]
    inputs: tuple[ir.Value, ...]

    def run(self, graph: ir.Graph, tokens: int, given: Mapping[ir.Value, Array]) -> Array:
        """The result for ``tokens`` tokens in each of two sequences.

        Args:
            graph: The whole graph, whose inputs are ids and positions [B, S].
            tokens: S.
            given: Values that the part starts from.

        Raises:
            NotRunError: The operators do not take such inputs.
            ForeignError: An input is none that a mask is computed of.
        """
        feeds = {
            _name(value): array
            for value, array in (
                *given.items(),
                *((v, _array(v)) for v in self.constants if v not in given),
                *((v, _input(graph, v, tokens)) for v in self.inputs),
                *((v, _shape(graph, n, tokens)) for v, n in self.shapes.items()),
            )
        }
        proto = onnx.helper.make_graph(
            [ir.to_proto(node) for node in self.nodes],
            "part",
            [onnx.ValueInfoProto(name=name) for name in feeds],
            [onnx.ValueInfoProto(name=_name(self.result))],
        )
        opsets = [onnx.helper.make_opsetid("", graph.opset_imports.get("", 23))]
        evaluator = ReferenceEvaluator(onnx.helper.make_model(proto, opset_imports=opsets))
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                result: Array = evaluator.run(None, feeds)[0]
        except (ValueError, IndexError, TypeError, RuntimeError, NotImplementedError) as error:
            raise NotRunError(f"its mask cannot be computed: {error}") from error
        return result


def region_of(graph: ir.Graph, result: ir.Value, start: ir.Value | None) -> Region:
    """The region that computes ``result``, from ``start`` and constants on.

    Raises:
        ForeignError: It is computed of the model's own values, too.
    """
    inside: set[ir.Node] = set()
    shapes: dict[ir.Value, ir.Node] = {}
    constants: dict[ir.Value, None] = {}
    inputs: dict[ir.Value, None] = {}
    stack = [result]
    while stack:
        value = stack.pop()
        node = value.producer()
        if value is start or node in inside:
            continue
        if node is None:
            (constants if value.const_value is not None else inputs)[value] = None
        elif is_op(node, "Shape") and _is_known(graph, node.inputs[0]):
            shapes[value] = node
        elif is_op(node, *_FOREIGN) or node.domain:
            raise ForeignError(f"{node.op_type} {node.name} gives a part of its mask")
        else:
            inside.add(node)
            stack.extend(v for v in node.inputs if v is not None)
    nodes = tuple(node for node in graph if node in inside)
    return Region(result, nodes, shapes, tuple(constants), tuple(inputs))


def _is_known(graph: ir.Graph, value: ir.Value | None) -> bool:
    """True if all dimensions have a size, or are those of the graph's inputs."""
    shape, names = [] if value is None else dims(value), _sizes(graph, 0)
    return bool(shape) and all(isinstance(dim, int) or dim in names for dim in shape)


def _shape(graph: ir.Graph, node: ir.Node, tokens: int) -> Array:
    value = node.inputs[0]
    names = _sizes(graph, tokens)
    found = (
        [] if value is None else [d if isinstance(d, int) else names.get(d) for d in dims(value)]
    )
    start = node.attributes.get_int("start", 0)
    end = node.attributes.get_int("end", len(found))
    chosen = found[start:end]
    return np.array(chosen, np.int64)


def _sizes(graph: ir.Graph, tokens: int) -> dict[str | None, int]:
    """Sizes by the names of the dimensions of ids and positions, and of an encoder's states."""
    states: dict[str | None, int] = {
        name: tokens + MORE_STATES
        for value in graph.inputs
        for name in dims(value)[2:]
        if isinstance(name, str)
    }
    return states | {
        name: size
        for value in graph.inputs
        for name, size in zip(dims(value), (BATCH, tokens), strict=False)
        if isinstance(name, str)
    }


def _input(graph: ir.Graph, value: ir.Value, tokens: int) -> Array:
    """Ids of any tokens, or their places: inputs of the exported form [B, S]."""
    if value is graph.inputs[0]:
        return np.random.default_rng(0).integers(3, 9, (BATCH, tokens))
    if len(graph.inputs) > 1 and value is graph.inputs[1]:
        return np.broadcast_to(np.arange(tokens), (BATCH, tokens)).copy()
    raise ForeignError(f"its mask is computed of the input {value.name}")


def _array(value: ir.Value) -> Array:
    if value.const_value is None:
        raise ForeignError(f"{value.name} has no value")
    return value.const_value.numpy()


def _name(value: ir.Value) -> str:
    return str(value.name)
