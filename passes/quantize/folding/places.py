"""The places where a scale for each channel can be folded, found by dataflow.

If every reader of x is a linear layer, and what gives x can be divided by a scale s for each
channel, then x/s and diag(s) W give the same results as x and W. Three things can:

1. a norm, by its scale and its bias: RMSNormalization, LayerNormalization, with or without an Add
   of a constant behind it;
2. a linear layer behind one side of a product, as ``up`` in ``silu(gate) * up``: by its rows;
3. the linear layer that gives the values of an attention, whose result is linear in them: by its
   rows. Query heads that share a KV head share its scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import constant, constant_ints
from optc.ir.linear import Linear, find_linear, head_of, linear_of
from optc.ir.pipeline.base import PassReport

_NORMS = ("RMSNormalization", "LayerNormalization")
#: Kinds of places, in the order in which they are folded: rows of ``up`` and of values change what
#: is largest in the columns that a norm's scale goes into.
PRODUCT, VALUES, NORM = "product", "values", "norm"
KINDS = (PRODUCT, VALUES, NORM)


@dataclass(frozen=True)
class Part:
    """Rows of a weight, or elements of a vector, that are divided by the scale.

    Attributes:
        initializer: The weight [N, K] by rows, or the vector [N].
        start: The first row.
        matmul: The linear layer's node; None for vectors.
    """

    initializer: ir.Value
    start: int = 0
    matmul: ir.Node | None = None


@dataclass(frozen=True)
class Place:
    """A scale's place.

    Attributes:
        kind: One of `KINDS`.
        x: What the linear layers read, [..., K].
        readers: Their MatMul nodes.
        parts: What is divided by the scale s [C].
        channels: [K] which element of s belongs to each column of x.
    """

    kind: str
    x: ir.Value
    readers: tuple[ir.Node, ...]
    parts: tuple[Part, ...]
    channels: npt.NDArray[np.intp]

    @property
    def linears(self) -> list[Linear]:
        """The readers, with their weights as they are now."""
        return [linear for node in self.readers if (linear := find_linear(node)) is not None]


class _RefusedError(Exception):
    """Why nothing can be folded; the message is the reason."""


def find_places(model: ir.Model, report: PassReport) -> list[Place]:
    """All places of ``model``, in dense form, by kind and then in the order of the graph.

    The reasons why other inputs of linear layers have none go into the report. The head's input is
    left: draft heads read it too.
    """
    head = head_of(model)
    by_input: dict[ir.Value, list[Linear]] = {}
    for node in model.graph:
        if (linear := find_linear(node)) is not None:
            by_input.setdefault(linear.x, []).append(linear)
    found: list[Place] = []
    for x, linears in by_input.items():
        if head is not None and any(one.matmul is head.matmul for one in linears):
            report.skip(linears[0].matmul, "the head's input stays as it is")
            continue
        try:
            found.append(_place(x, linears))
        except _RefusedError as reason:
            report.skip(linears[0].matmul, str(reason))
    return sorted(found, key=lambda place: KINDS.index(place.kind))


def _place(x: ir.Value, linears: list[Linear]) -> Place:
    nodes = tuple(linear.matmul for linear in linears)
    if x.is_graph_output() or any(use.node not in nodes for use in x.uses()):
        raise _RefusedError("its input has other readers than linear layers")
    for linear in linears:
        if len(linear.initializer.uses()) != 1:
            raise _RefusedError("its weight is used elsewhere too")
    node, width = x.producer(), linears[0].weight.rows_shape[1]
    same = np.arange(width)
    if node is None:
        raise _RefusedError("its input is the model's")
    if is_op(node, "Attention", domain=DOMAIN):
        channels = _value_channels(node, width)
        parts = _rows(node.inputs[2], "its values", int(channels[-1]) + 1)
        return Place(VALUES, x, nodes, parts, channels)
    if is_op(node, "Mul"):
        return Place(PRODUCT, x, nodes, _factor(node, width), same)
    return Place(NORM, x, nodes, tuple(_norm_vectors(x, node, width)), same)


def _value_channels(attention: ir.Node, width: int) -> npt.NDArray[np.intp]:
    """For each column of the result, [query heads, Dv], the channel of the values, [KV heads, Dv],
    that it averages."""
    heads, kv_heads = (attention.attributes[n].as_int() for n in ("num_heads", "kv_num_heads"))
    size = width // heads
    shared = np.arange(heads) // (heads // kv_heads)
    channels: npt.NDArray[np.intp] = (shared[:, None] * size + np.arange(size)).ravel()
    return channels


def _factor(product: ir.Node, width: int) -> tuple[Part, ...]:
    """Rows of the linear layer that gives one operand, for nothing but this product."""
    reasons = []
    for value in reversed(product.inputs):
        try:
            parts = _rows(value, "an operand of the product", width)
        except _RefusedError as reason:
            reasons.append(reason)
            continue
        return parts
    raise reasons[0]


def _rows(value: ir.Value | None, what: str, width: int) -> tuple[Part, ...]:
    """Rows of the weight and elements of the bias of the linear layer that gives ``value``, which
    is all its result or one part of a Split, of ``width`` channels."""
    node = None if value is None else value.producer()
    whole, start, size = value, 0, None
    if value is not None and node is not None and is_op(node, "Split"):
        sizes = constant_ints(node.inputs[1]) if len(node.inputs) > 1 else None
        if sizes is None or len(value.uses()) != 1:
            raise _RefusedError(f"{what}: a part of a Split of unknown sizes or of several readers")
        index = list(node.outputs).index(value)
        whole, start, size = node.inputs[0], sum(sizes[:index]), sizes[index]
    linear = linear_of(whole)
    if linear is None or whole is None:
        raise _RefusedError(f"{what}: no linear layer gives it")
    if len(whole.uses()) != 1 or (value is not None and len(value.uses()) != 1):
        raise _RefusedError(f"{what}: the linear layer that gives it has other readers")
    if len(linear.initializer.uses()) != 1:
        raise _RefusedError(f"{what}: the weight of the linear layer is used elsewhere too")
    if (size or linear.weight.rows_shape[0]) != width:
        raise _RefusedError(f"{what}: the linear layer that gives it is not {width} channels wide")
    parts = [Part(linear.initializer, start, linear.matmul)]
    if linear.bias is not None:
        parts.append(Part(_own(linear.bias), start))
    return tuple(parts)


def _norm_vectors(x: ir.Value, node: ir.Node, width: int) -> Iterator[Part]:
    """Scale and biases of the norm that gives x."""
    if is_op(node, "Add"):  # its bias
        constants = [v for v in node.inputs if v is not None and constant(v) is not None]
        others = [v for v in node.inputs if v is not None and v not in constants]
        norm = others[0].producer() if len(others) == 1 and len(constants) == 1 else None
        if norm is None or not is_op(norm, *_NORMS) or len(others[0].uses()) != 1:
            raise _RefusedError("its input is a sum, not given by a norm")
        yield Part(_vector(constants[0], width))
        node = norm
    if not is_op(node, *_NORMS):
        raise _RefusedError(f"its input is given by {node.op_type}, which takes no scale")
    if node.attributes.get_int("axis", -1) not in (-1, 2):
        raise _RefusedError("its norm is not over the last axis")
    for value in node.inputs[1:]:
        if value is not None:
            yield Part(_vector(value, width))


def _vector(value: ir.Value, width: int) -> ir.Value:
    tensor = constant(value)
    if tensor is None or tuple(tensor.shape.numpy()) != (width,):
        raise _RefusedError("its norm's scale or bias is no constant by channel")
    return _own(value)


def _own(value: ir.Value) -> ir.Value:
    """``value``, if it can be given other contents."""
    if not value.is_initializer() or len(value.uses()) != 1:
        raise _RefusedError("a scale or bias is used elsewhere too")
    return value
