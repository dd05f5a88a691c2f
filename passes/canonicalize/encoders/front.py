"""The front of an encoder of images or sounds: from its input to the rows of its first layer.

A patch embedding is a convolution whose windows do not overlap: its rows are linear in the values
of patches. What stands between it and the first layer (other axes, rows that are no patches, places)
is run on numbers: it moves each patch to a row, and adds what is the same for all inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.emit import Emitter
from optc.ir.forms.packed import FEATURES, Patches
from optc.ir.functions import is_op, make_node
from optc.ir.graph import constant, remove_unused
from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.dataflow import dims, substitute, uses
from optc.passes.canonicalize.encoders.source import Source
from optc.passes.canonicalize.encoders.token_axis import name_tokens
from optc.passes.canonicalize.spelled.region import BATCH, ForeignError, region_of

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
#: Name of the dimension.
_TOKENS = "tokens"
#: Operators that work on each value alone, of one operand.
_UNARY = ("Gelu", "Relu", "Tanh", "Sigmoid", "Swish", "Identity")


def source_of_patches(model: ir.Model, report: PassReport) -> Source | None:
    """Replace an input of images or sounds by rows, one for each token: `FEATURES` [batch, tokens,
    K], or several for a token. Places of tokens become an input, too.

    Returns:
        None where the model reads something else.

    Raises:
        UnsupportedError: It reads images or sounds, and its front is not recognized.
    """
    graph = model.graph
    pixels = graph.inputs[0]
    shape = dims(pixels)
    fixed = all(isinstance(size, int) for size in shape[1:])
    if len(graph.inputs) != 1 or pixels.dtype != ir.DataType.FLOAT or len(shape) not in (3, 4):
        return None
    if not isinstance(shape[0], str) or not fixed:
        return None
    chain = _Chain.of(model, pixels)
    place = _placed(graph, chain)
    chain.emit(model, place)
    _drop(model, pixels, chain.features)
    name_tokens(graph, str(shape[0]), place.tokens, _TOKENS)
    report.add("front of patches")
    patches = Patches(
        str(pixels.name),
        chain.sizes,
        place.tokens,
        chain.length // math.prod(chain.grid),
        place.lead,
    )
    graph.inputs.clear()
    graph.inputs.extend([chain.features, chain.positions])
    return Source(graph, chain.features, None, None, str(shape[0]), _TOKENS, patches)


def _convolution(node: ir.Node) -> tuple[Array, Array | None]:
    """Weight [D, C, …] and bias [D] of a convolution whose windows can be rows.

    Raises:
        UnsupportedError: They cannot.
    """
    weight, bias = (constant(v) for v in (*node.inputs[1:], None)[:2])
    plain = node.attributes.get_int("group", 1) == 1 and set(_ints(node, "dilations", 1)) <= {1}
    if weight is None or not plain or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        raise _unknown(node, "it is grouped or dilated, or its weight is computed")
    return weight.numpy(), None if bias is None else bias.numpy()


def _ints(node: ir.Node, name: str, default: int) -> tuple[int, ...]:
    found = node.attributes.get(name)
    axes = len(dims(node.outputs[0])) - 2
    return (default,) * axes if found is None else tuple(found.as_ints())


@dataclass
class _Chain:
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
    def of(cls, model: ir.Model, pixels: ir.Value) -> _Chain:
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
        kernel, strides = weight.shape[2:], _ints(first, "strides", 1)
        apart = kernel == strides and not any(_pads(first))
        if not apart and len(whole) > 1:
            raise _unknown(first, "its windows overlap, or do not touch")
        sizes = tuple(kernel) if apart else (1,)
        if any(size % part for size, part in zip(whole, sizes, strict=True)):
            raise _unknown(first, f"patches of {list(sizes)} do not fill {whole}")
        nodes, value = [first], first.outputs[0]
        while (following := _next(value)) is not None:
            nodes.append(following)
            value = following.outputs[0]
            bias = _convolution(following)[1] if is_op(following, "Conv") else None
        grid = tuple(int(d) for d in dims(value)[2:] if isinstance(d, int))
        parts = [size // part for size, part in zip(whole, sizes, strict=True)]
        length = math.prod(parts)
        batch, width = str(dims(pixels)[0]), math.prod(sizes) * weight.shape[1]
        inputs = [
            ir.Value(name=name, type=ir.TensorType(kind), shape=ir.Shape(shape))
            for name, kind, shape in (
                (FEATURES, ir.DataType.FLOAT, [batch, _rows(length, math.prod(grid)), width]),
                ("position_ids", ir.DataType.INT64, [batch, _TOKENS]),
            )
        ]
        return cls(nodes, sizes, length, grid, value, bias, inputs[0], inputs[1])

    def emit(self, model: ir.Model, place: _Place) -> None:
        """The chain over rows in front of all, and the rows of ``place`` in its place."""
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
            if index or self.sizes == (1,) and weight.shape[2:] != (1,):
                new = _windows(model, value, node, weight, length)
                emitter.nodes.append(new)
                value, length = new.outputs[0], new.attributes.get_int("windows", 0)
                wide = weight.shape[1] * weight.shape[2]
                value.shape = ir.Shape([batch, _rows(length, patch), wide])
                weight = np.moveaxis(weight, 1, -1)
            rows = np.ascontiguousarray(weight.reshape(len(weight), -1).T)
            label = str(node.inputs[1].name) if node.inputs[1] is not None else f"w{index}"
            matrix = Emitter(graph, label).constant("rows", rows)
            shape = [batch, _rows(length, patch), len(weight)]
            value = emitter.op(f"c{index}", "MatMul", [value, matrix], shape)
            if bias is not None and node is not last:
                added = emitter.constant(f"b{index}", bias)
                value = emitter.op(f"s{index}", "Add", [value, added], shape)
        table = emitter.constant("places", place.table)
        shape = [batch, _TOKENS, place.table.shape[1]]
        at = emitter.op("place", "Gather", [table, self.positions], shape, axis=0)
        out = emitter.op("rows", "Add", [value, at], shape)
        graph.insert_before(graph[0], emitter.nodes)
        substitute(place.result, out)


def dims_of(value: ir.Value) -> list[int | str]:
    """Dimensions that are all known."""
    return [d for d in dims(value) if d is not None]


def _rows(length: int, patches: int) -> str:
    rate = length // patches
    return _TOKENS if rate == 1 else f"{rate}*{_TOKENS}"


def _windows(
    model: ir.Model, x: ir.Value, node: ir.Node, weight: Array, length: int
) -> ir.Node:
    """Rows side by side, as a convolution along sequences of ``length`` rows reads them."""
    kernel, (stride,) = weight.shape[2], _ints(node, "strides", 1)
    before, after = _pads(node)
    windows = (length + before + after - kernel) // stride + 1
    if length % windows:
        raise _unknown(node, f"it makes {windows} rows of {length}")
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


def _pads(node: ir.Node) -> tuple[int, ...]:
    found = node.attributes.get("pads")
    return (0, 0) * (len(dims(node.outputs[0])) - 2) if found is None else tuple(found.as_ints())


@dataclass(frozen=True)
class _Place:
    """What a front makes of its convolutions' result.

    Attributes:
        result: The rows of the first layer [batch, tokens, D].
        table: What is added to each row f32[tokens, D], the bias of the last convolution included.
        lead: Rows before those of patches.
    """

    result: ir.Value
    table: Float32
    lead: int

    @property
    def tokens(self) -> int:
        """Rows of a sequence."""
        return len(self.table)


def _placed(graph: ir.Graph, chain: _Chain) -> _Place:
    """The last value that is made of patches by moving them and adding constants.

    Raises:
        UnsupportedError: There is none.
    """
    found: _Place | None = None
    width = dims(chain.result)[1]
    for node in graph:
        for value in node.outputs:
            shape = dims(value)
            rows = len(shape) == 3 and shape[2] == width and isinstance(shape[1], int)
            if rows and shape[0] == dims(chain.result)[0]:
                found = _place(graph, chain, value) or found
    if found is None:
        raise _unknown(chain.nodes[-1], "its result does not become rows of tokens")
    return found


def _place(graph: ir.Graph, chain: _Chain, value: ir.Value) -> _Place | None:
    rng, width = np.random.default_rng(4), int(dims_of(value)[2])
    shape = (BATCH, width, *chain.grid)
    moved = rng.standard_normal(shape).astype(np.float32)
    bias = np.zeros(width, np.float32) if chain.bias is None else chain.bias
    still: Float32 = np.broadcast_to(bias.reshape(-1, *[1] * len(chain.grid)), shape)
    still = np.ascontiguousarray(still)
    try:
        region = region_of(graph, value, chain.result)
        feeds: list[Mapping[ir.Value, Array]] = [{chain.result: one} for one in (still, still + moved)]
        table, result = (region.run(graph, 0, one) for one in feeds)
    except ForeignError:
        return None
    patches = moved.reshape(BATCH, width, -1).transpose(0, 2, 1)
    gained = result - table
    lead = int(np.argmax(np.abs(gained[0]).max(axis=1) > 0))
    expected = np.zeros_like(gained)
    part = expected[:, lead : lead + patches.shape[1]]
    if part.shape != patches.shape or not np.array_equal(table[0], table[1]):
        return None
    part[:] = patches
    if not np.allclose(gained, expected, atol=1e-5):
        return None
    if lead and chain.length != patches.shape[1]:
        return None
    return _Place(value, np.ascontiguousarray(table[0], np.float32), lead)


def _drop(model: ir.Model, pixels: ir.Value, features: ir.Value) -> None:
    """Sizes of a batch are read of the new input."""
    remove_unused(model)
    for node, index in list(pixels.uses()):
        first = node.attributes.get_int("start", 0), node.attributes.get_int("end", -1)
        if not is_op(node, "Shape") or first != (0, 1):
            raise _unknown(node, "it reads the input behind the front")
        node.replace_input_with(index, features)


def _unknown(node: ir.Node, reason: str) -> UnsupportedError:
    return UnsupportedError(
        reason,
        where=f"pass pack-rows, {node.name} ({node.op_type})",
        hint="fronts are patches, or convolutions along a sequence, whose results become rows",
    )
