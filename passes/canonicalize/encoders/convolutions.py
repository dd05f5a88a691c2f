"""Convolutions that read an input of images or sounds, and the same over rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.emit import Emitter
from optc.ir.forms.packed import FEATURES
from optc.ir.functions import is_op, make_node
from optc.ir.graph import constant
from optc.passes.canonicalize.dataflow import dims, uses

Array = npt.NDArray[Any]
#: Name of the dimension.
TOKENS = "tokens"
#: Operators that work on each value alone, of one operand.
_UNARY = ("Gelu", "Relu", "Tanh", "Sigmoid", "Swish", "Identity")


def _convolution(node: ir.Node) -> tuple[Array, Array | None]:
    """Weight [D, C, …] and bias [D] of a convolution whose windows can be rows.

    Raises:
        UnsupportedError: They cannot.
    """
    weight, bias = (constant(v) for v in (*node.inputs[1:], None)[:2])
    plain = node.attributes.get_int("group", 1) == 1 and set(_ints(node, "dilations", 1)) <= {1}
    if weight is None or not plain or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        raise unknown(node, "it is grouped or dilated, or its weight is computed")
    return weight.numpy(), None if bias is None else bias.numpy()


def _ints(node: ir.Node, name: str, default: int) -> tuple[int, ...]:
    found = node.attributes.get(name)
    axes = len(dims(node.outputs[0])) - 2
    return (default,) * axes if found is None else tuple(found.as_ints())


@dataclass
class Chain:
    """Convolutions and activations from the input on, and the same over rows.

    Attributes:
        nodes: In order.
        sizes: Of a patch.
        length: Rows of a sequence that are read.
        grid: Sizes of the axes behind the last one's channels.
        result: [batch, D, …], of the last one.
        bias: Of the last one, if that is a convolution.
        features: The new input.
        positions: The other new input.
    """

    nodes: list[ir.Node]
    sizes: tuple[int, ...]
    length: int
    grid: tuple[int, ...]
    result: ir.Value
    bias: Array | None
    features: ir.Value
    positions: ir.Value

    @classmethod
    def of(cls, model: ir.Model, pixels: ir.Value) -> Chain:
        """The chain that reads ``pixels``.

        Raises:
            UnsupportedError: It begins with something else, or windows of an image overlap.
        """
        readers = [node for node in uses(pixels) if not is_op(node, "Shape")]
        if len(readers) != 1 or not is_op(readers[0], "Conv"):
            found = ", ".join(node.op_type for node in readers)
            raise UnsupportedError(
                f"its input is read by {found}, and not by one convolution", where="pass pack-rows"
            )
        first = readers[0]
        weight, bias = _convolution(first)
        whole = [int(d) for d in dims(pixels)[2:] if isinstance(d, int)]
        apart = _is_apart(first, weight)
        if not apart and len(whole) > 1:
            raise unknown(first, "its windows overlap, or do not touch")
        sizes = tuple(weight.shape[2:]) if apart else (1,)
        if any(size % part for size, part in zip(whole, sizes, strict=True)):
            raise unknown(first, f"patches of {list(sizes)} do not fill {whole}")
        nodes, value = [first], first.outputs[0]
        while (following := _next(value)) is not None:
            nodes.append(following)
            value = following.outputs[0]
            bias = _convolution(following)[1] if is_op(following, "Conv") else None
        grid = tuple(int(d) for d in dims(value)[2:] if isinstance(d, int))
        if not grid or len(grid) != len(dims(value)) - 2:
            raise unknown(nodes[-1], "the shape of its result is not known")
        parts = [size // part for size, part in zip(whole, sizes, strict=True)]
        length = math.prod(parts)
        batch, width = str(dims(pixels)[0]), math.prod(sizes) * weight.shape[1]
        inputs = [
            ir.Value(name=name, type=ir.TensorType(kind), shape=ir.Shape(shape))
            for name, kind, shape in (
                (FEATURES, ir.DataType.FLOAT, [batch, _rows(length, math.prod(grid)), width]),
                ("position_ids", ir.DataType.INT64, [batch, TOKENS]),
            )
        ]
        return cls(nodes, sizes, length, grid, value, bias, inputs[0], inputs[1])

    def emit(self, model: ir.Model, table: Array) -> ir.Value:
        """The chain over rows in front of all; returns rows with those of ``table`` [tokens, D]
        added."""
        graph, batch = model.graph, str(dims(self.features)[0])
        emitter = Emitter(graph, "front")
        value, length = self.features, self.length
        patch = math.prod(self.grid)
        last = self.nodes[-1]
        for index, node in enumerate(self.nodes):
            if not is_op(node, "Conv"):
                attributes = {n: a.value for n, a in node.attributes.items()}
                value = emitter.op(f"a{index}", node.op_type, [value], dims_of(value), **attributes)
                continue
            weight, bias = _convolution(node)
            if index or not _is_apart(node, weight):
                new = _windows(model, value, node, weight, length)
                emitter.nodes.append(new)
                value, length = new.outputs[0], new.attributes.get_int("windows", 0)
                wide = weight.shape[1] * weight.shape[2]
                value.shape = ir.Shape([batch, _rows(length, patch), wide])
                weight = np.moveaxis(weight, 1, -1)
            rows = np.ascontiguousarray(weight.reshape(len(weight), -1).T)
            label = str(node.inputs[1].name) if node.inputs[1] is not None else f"w{index}"
            matrix = Emitter(graph, label).constant("rows", rows)
            shape: list[int | str] = [batch, _rows(length, patch), len(weight)]
            value = emitter.op(f"c{index}", "MatMul", [value, matrix], shape)
            if bias is not None and node is not last:
                added = emitter.constant(f"b{index}", bias)
                value = emitter.op(f"s{index}", "Add", [value, added], shape)
        places = emitter.constant("places", table)
        shape = [batch, TOKENS, int(table.shape[1])]
        at = emitter.op("place", "Gather", [places, self.positions], shape, axis=0)
        out = emitter.op("rows", "Add", [value, at], shape)
        graph.insert_before(graph[0], emitter.nodes)
        return out


def dims_of(value: ir.Value) -> list[int | str]:
    """Dimensions that are all known."""
    return [d for d in dims(value) if d is not None]


def _rows(length: int, patches: int) -> str:
    rate = length // patches
    return TOKENS if rate == 1 else f"{rate}*{TOKENS}"


def _windows(model: ir.Model, x: ir.Value, node: ir.Node, weight: Array, length: int) -> ir.Node:
    """Rows side by side, as a convolution along sequences of ``length`` rows reads them."""
    kernel, (stride,) = weight.shape[2], _ints(node, "strides", 1)
    before, after = _pads(node)
    windows = (length + before + after - kernel) // stride + 1
    if length % windows:
        raise unknown(node, f"it makes {windows} rows of {length}")
    attributes = {
        "width": weight.shape[1],
        "kernel": kernel,
        "stride": stride,
        "before": before,
        "length": length,
        "windows": windows,
    }
    new = make_node(model, "WindowRows", [x], attributes, name=f"{node.name}.windows")
    new.outputs[0].name = f"{node.name}.windows"
    return new


def _next(value: ir.Value) -> ir.Node | None:
    """The activation or the convolution along a sequence that alone reads ``value``."""
    readers = uses(value)
    if len(readers) != 1 or value.is_graph_output():
        return None
    node = readers[0]
    along = is_op(node, "Conv") and len(dims(value)) == 3 and node.inputs[0] is value
    return node if along or is_op(node, *_UNARY) else None


def _is_apart(node: ir.Node, weight: Array) -> bool:
    """True if windows neither overlap nor leave something out."""
    return weight.shape[2:] == _ints(node, "strides", 1) and not any(_pads(node))


def _pads(node: ir.Node) -> tuple[int, ...]:
    found = node.attributes.get("pads")
    return (0, 0) * (len(dims(node.outputs[0])) - 2) if found is None else tuple(found.as_ints())


def unknown(node: ir.Node, reason: str) -> UnsupportedError:
    """The refusal of a node of a front."""
    return UnsupportedError(
        reason,
        where=f"pass pack-rows, {node.name} ({node.op_type})",
        hint="fronts are patches, or convolutions along a sequence, whose results become rows",
    )
