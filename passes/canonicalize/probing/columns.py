"""Columns of a projection in another order: the rows of its weights are read in that order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.functions import DOMAIN, attributes_of, make_node
from optc.ir.graph import add_initializer, constant, int_initializer
from optc.ir.linear import Linear, linear_of
from optc.ir.sources import sources_metadata, taken_rows
from optc.ir.weights import permute_rows
from optc.passes.canonicalize.dataflow import dims, emit, insert, last_axis_range, operand, producer
from optc.passes.canonicalize.probing.evaluate import Unreadable

Ints = npt.NDArray[np.int64]


def take_heads(
    model: ir.Model, before: ir.Node, sources: Sequence[ir.Value], columns: Ints, role: str
) -> ir.Value:
    """Heads [B, S, H * D] of ``columns`` [H, D], which count those of all ``sources`` in turn.

    Of one source they are columns of it (`take_columns`); of two, ``optc::HeadConcat`` joins them.

    Raises:
        Unreadable: Columns cannot be taken, or those of the sources are mixed.
    """
    starts = np.cumsum([0, *(int(dims(source)[-1] or 0) for source in sources)])
    pieces = list(_pieces(starts, columns))
    if len(pieces) == 1:
        index, own = pieces[0]
        return take_columns(model, before, sources[index], own.reshape(-1), role)
    shared = [len(columns) > 1 and bool((own == own[0]).all()) for _, own in pieces]
    if len(pieces) != 2 or shared[1]:
        raise Unreadable("its dimensions take turns in coming from two projections")
    parts = [
        take_columns(model, before, sources[index], own[0] if alike else own.reshape(-1), name)
        for (index, own), alike, name in zip(pieces, shared, (f"{role}0", f"{role}1"), strict=True)
    ]
    attributes = {"num_heads": len(columns), "shared": int(shared[0])}
    joined = make_node(model, "HeadConcat", parts, attributes)
    joined.outputs[0].shape = ir.Shape([*dims(parts[0])[:-1], columns.size])
    insert(before, joined)
    return joined.outputs[0]


def _pieces(starts: Ints, columns: Ints) -> Iterator[tuple[int, Ints]]:
    """The dimensions of heads in runs of one source: its index, and columns of it [H, d].

    Raises:
        Unreadable: Heads have a dimension from different sources.
    """
    of_source = np.searchsorted(starts, columns[0], side="right") - 1
    cuts = [0, *(np.flatnonzero(np.diff(of_source)) + 1), columns.shape[1]]
    for first, last in pairwise(cuts):
        index = int(of_source[first])
        own = columns[:, first:last] - starts[index]
        if (own < 0).any() or (own >= starts[index + 1] - starts[index]).any():
            raise Unreadable("its heads come from different projections")
        yield index, own


def take_columns(
    model: ir.Model, before: ir.Node, x: ir.Value, columns: Ints, role: str
) -> ir.Value:
    """x[..., columns], made without moving values where that is possible.

    1. All columns in order: x itself.
    2. Columns side by side: a ``Slice``.
    3. Of a linear layer: one with these rows of its weight (and bias).
    4. Of a norm, over all columns or over heads: the norm of its operand's columns.
    5. Of a ``Slice`` or ``Split`` of the last axis: of its operand's columns.

    Args:
        model: Gets constants.
        before: Where new nodes are inserted.
        x: [B, S, W].
        columns: [N], in the order that is wanted.
        role: Ends the name of a new weight.

    Raises:
        Unreadable: None of these.
    """
    width = int(dims(x)[-1] or 0)
    first = int(columns[0])
    if np.array_equal(columns, np.arange(first, first + len(columns))):
        return x if len(columns) == width else _slice(model, before, x, first, len(columns))
    linear = linear_of(x)
    if linear is not None:
        return _linear(model, before, linear, columns, role)
    part = last_axis_range(x)
    if part is not None:
        return take_columns(model, before, part[0], columns + part[1], role)
    node = producer(x, "HeadRMSNorm", domain=DOMAIN)
    if node is not None:
        return _head_norm(model, before, node, columns, role)
    node = producer(x, "RMSNormalization", "LayerNormalization")
    if node is not None and np.array_equal(np.sort(columns), np.arange(width)):
        return _norm(model, before, node, columns, role)
    raise Unreadable("the columns of its operand cannot be put in another order")


def _slice(model: ir.Model, before: ir.Node, x: ir.Value, first: int, size: int) -> ir.Value:
    """Legal case 2."""
    bounds = {"first": [first], "last": [first + size], "axis": [-1]}
    inputs = [int_initializer(model.graph, v, f"columns_{k}") for k, v in bounds.items()]
    return emit(before, "Slice", [x, *inputs], x, None, [*dims(x)[:-1], size])


def _linear(model: ir.Model, before: ir.Node, linear: Linear, columns: Ints, role: str) -> ir.Value:
    """Legal case 3."""
    name = f"{linear.name}.{role}"
    weight = permute_rows(linear.weight, columns)
    value = add_initializer(model.graph, weight, name)
    rows, name = linear.weight.rows_shape[0], str(value.name)
    if taken := taken_rows(linear.initializer, rows, columns, name):
        value.metadata_props.update(sources_metadata(taken))
    shape = [*dims(linear.x)[:-1], len(columns)]
    result = emit(before, "MatMul", [linear.x, value], linear.output, None, shape)
    bias = constant(linear.bias)
    if bias is not None:
        own = _taken(model, bias, columns, f"{name}.bias")
        result = emit(before, "Add", [result, own], linear.output, None, shape)
    return result


def _head_norm(
    model: ir.Model, before: ir.Node, node: ir.Node, columns: Ints, role: str
) -> ir.Value:
    """Legal case 4, over heads: all of them, one order within each."""
    heads = node.attributes.get_int("num_heads", 1)
    size = int(dims(node.outputs[0])[-1] or 0) // heads
    order = columns[:size]
    whole = (np.arange(heads)[:, None] * size + order).reshape(-1)
    scale = constant(operand(node, 1))
    if scale is None or not np.array_equal(columns, whole):
        raise Unreadable("the columns of its head norm cannot be put in another order")
    x = take_columns(model, before, operand(node, 0), columns, role)
    taken = _taken(model, scale, order, f"{operand(node, 1).name}.{role}")
    normed = make_node(model, "HeadRMSNorm", [x, taken], attributes_of(node))
    normed.outputs[0].shape = x.shape
    insert(before, normed)
    return normed.outputs[0]


def _norm(model: ir.Model, before: ir.Node, node: ir.Node, columns: Ints, role: str) -> ir.Value:
    """Legal case 4, over all columns."""
    x = take_columns(model, before, operand(node, 0), columns, role)
    inputs: list[ir.Value | None] = [x]
    for value in node.inputs[1:]:
        tensor = constant(value)
        if value is None or tensor is None:
            raise Unreadable("its norm has no constant scale")
        inputs.append(_taken(model, tensor, columns, f"{value.name}.{role}"))
    attributes: dict[str, Any] = {k: a.value for k, a in node.attributes.items()}
    return emit(before, node.op_type, inputs, node.outputs[0], attributes)


def _taken(model: ir.Model, tensor: ir.TensorProtocol, columns: Ints, name: str) -> ir.Value:
    """A constant vector's elements in another order."""
    array = np.ascontiguousarray(tensor.numpy()[columns])
    return add_initializer(model.graph, ir.tensor(array, name=name), name)
