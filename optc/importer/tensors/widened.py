"""Graphs as engines take them: no output that is an input, no bfloat16."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import onnx_ir as ir

_NARROW, _WIDE = ir.DataType.BFLOAT16, ir.DataType.FLOAT


def free_inputs(model: ir.Model) -> None:
    """Put an Identity before outputs of ``model`` that are its inputs, which keep their names:
    passes that repair such outputs give the inputs others."""
    taken = {value.name for value in (*model.graph.inputs, *model.graph.outputs)}
    for index, value in enumerate(model.graph.outputs):
        if not value.is_graph_input():
            continue
        name = f"{value.name}_out"
        while name in taken:
            name += "_"
        taken.add(name)
        node = ir.node("Identity", [value])
        (copy,) = node.outputs
        copy.name, copy.shape, copy.type = name, value.shape, value.type
        model.graph.append(node)
        model.graph.outputs[index] = copy


def widen(model: ir.Model) -> tuple[str, ...]:
    """Compute in float32 what ``model`` computes in bfloat16, which ONNX Runtime has next to no
    operators for on CPUs: weights keep their values, sums are as exact or more so.

    Returns:
        A warning where there is something of bfloat16.
    """
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    found = 0
    for graph in graphs:
        for value in _values(graph):
            if value.dtype is _NARROW:
                value.dtype = _WIDE
                found += 1
            if value.const_value is not None and value.const_value.dtype is _NARROW:
                value.const_value = _wide(value.const_value)
        for node in ir.traversal.RecursiveGraphIterator(graph):
            found += sum(
                _widen_attribute(node, attribute) for attribute in node.attributes.values()
            )
    if not found:
        return ()
    return ("it computes in bfloat16, which engines of it do in float32, inputs and outputs too",)


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from (*graph.inputs, *graph.initializers.values())
    for node in graph:
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from _values(attribute.as_graph())
            elif attribute.type == ir.AttributeType.GRAPHS:
                for one in attribute.as_graphs():
                    yield from _values(one)


def _widen_attribute(node: ir.Node, attribute: ir.Attr) -> int:
    """Number of types that changed."""
    if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype is _NARROW:
        tensor = ir.AttrTensor(attribute.name, _wide(attribute.as_tensor()))
    elif (
        attribute.type == ir.AttributeType.INT
        and (node.op_type, attribute.name) in _TYPES
        and attribute.value == _NARROW
    ):
        tensor = ir.AttrInt64(attribute.name, int(_WIDE))
    else:
        return 0
    node.attributes[attribute.name] = tensor
    return 1


#: Attributes that say types, of operators that may give bfloat16.
_TYPES = frozenset(
    (operator, "dtype")
    for operator in (
        "EyeLike",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "SequenceEmpty",
        "Multinomial",
        "Bernoulli",
    )
) | {("Cast", "to"), ("QuantizeLinear", "output_dtype"), ("DequantizeLinear", "output_dtype")}


def _wide(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    numbers = tensor.numpy()
    if numbers.dtype != ml_dtypes.bfloat16:
        numbers = numbers.view(ml_dtypes.bfloat16)
    return ir.Tensor(numbers.astype(np.float32), name=tensor.name)
