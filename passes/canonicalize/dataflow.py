"""Reading a graph backwards: constants, commutative operands, axis ranges, misses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import constant, constant_ints
from optc.ir.pipeline.base import PassReport

#: Key in a node's ``meta`` under which finders leave their reason for leaving it alone.
MISS = "optc.miss"


def scalar(value: ir.Value | None) -> float | None:
    """The number behind a constant of one element; None for anything else."""
    tensor = constant(value)
    if tensor is None or tensor.size != 1:
        return None
    return float(tensor.numpy().reshape(()))


def producer(value: ir.Value | None, *op_types: str, domain: str = "") -> ir.Node | None:
    """The node that makes ``value`` if it is one of ``op_types``, else None."""
    node = None if value is None else value.producer()
    return node if is_op(node, *op_types, domain=domain) else None


def operand(node: ir.Node, index: int) -> ir.Value:
    """Input ``index`` of ``node``, which the operator always has."""
    value = node.inputs[index]
    if value is None:
        raise ValueError(f"{node.name}: input {index} is absent")
    return value


def orders(node: ir.Node) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Both orders of a commutative node's two operands."""
    first, second = operand(node, 0), operand(node, 1)
    yield first, second
    yield second, first


def rank(value: ir.Value | None) -> int | None:
    """Number of axes, None if unknown."""
    return None if value is None or value.shape is None else len(value.shape)


def dims(value: ir.Value) -> list[int | str | None]:
    """Sizes as integers, names of symbolic dimensions, or None where unknown."""
    if value.shape is None:
        return []
    return [d if isinstance(d, int) else d.value for d in value.shape]


def same_shape(left: ir.Value, right: ir.Value) -> bool:
    """True if both shapes are known and equal; unnamed dimensions equal nothing."""
    shape = dims(left)
    return bool(shape) and None not in shape and shape == dims(right)


def axis_of(node: ir.Node, value: ir.Value, default: int) -> int:
    """Attribute ``axis`` counted from the front of ``value``'s shape; as it is if unknown."""
    axis = node.attributes.get_int("axis", default)
    size = rank(value)
    return axis + size if axis < 0 and size is not None else axis


def last_axis_range(value: ir.Value) -> tuple[ir.Value, int, int] | None:
    """(x, start, stop) if ``value`` is x[..., start:stop] by a Slice or a Split."""
    node = producer(value, "Slice", "Split")
    if node is None:
        return None
    x = operand(node, 0)
    shape = dims(x)
    if not shape or not isinstance(shape[-1], int):
        return None
    if node.op_type == "Split":
        return _split_range(node, value, x, shape[-1])
    given = [v for ints in node.inputs[1:] for v in constant_ints(ints) or ()]
    if len(given) != len(node.inputs) - 1 or len(given) < 3:
        return None
    first, last, axis, *step = given
    if axis not in (-1, len(shape) - 1) or step not in ([], [1]):
        return None
    start, stop, _ = slice(first, last).indices(shape[-1])
    return x, start, stop


def _split_range(
    node: ir.Node, value: ir.Value, x: ir.Value, size: int
) -> tuple[ir.Value, int, int] | None:
    if axis_of(node, x, 0) != (rank(x) or 0) - 1:
        return None
    sizes = constant_ints(node.inputs[1]) if len(node.inputs) > 1 else None
    if sizes is None:
        part = -(-size // len(node.outputs))
        sizes = [part] * (len(node.outputs) - 1) + [size - part * (len(node.outputs) - 1)]
    index = list(node.outputs).index(value)
    start = sum(sizes[:index])
    return x, start, start + sizes[index]


def uses(value: ir.Value) -> list[ir.Node]:
    """The nodes that read ``value``, once each, in order of use."""
    return list(dict.fromkeys(node for node, _ in value.uses()))


def emit(
    before: ir.Node,
    op_type: str,
    inputs: list[ir.Value | None],
    like: ir.Value,
    attributes: dict[str, Any] | None = None,
    shape: list[int | str | None] | None = None,
) -> ir.Value:
    """Insert a standard node in front of ``before``; its value has ``like``'s type and shape,
    or ``shape``."""
    value = ir.Value(type=like.type, shape=ir.Shape(dims(like) if shape is None else shape))
    node = ir.Node(
        "",
        op_type,
        inputs,
        ir.convenience.convert_attributes(attributes or {}),
        outputs=[value],
    )
    insert(before, node)
    return value


def insert(before: ir.Node, node: ir.Node) -> None:
    """Insert ``node`` in front of ``before`` in its graph."""
    graph = before.graph
    if graph is None:
        raise ValueError(f"{before.name}: node is in no graph")
    graph.insert_before(before, node)


def substitute(old: ir.Value, new: ir.Value) -> None:
    """Let every reader of ``old`` read ``new``, which takes over the name of a graph output."""
    if old.is_graph_output():
        name, old.name = old.name, f"{old.name}.old"
        new.name = name
    ir.convenience.replace_all_uses_with(old, new, True)


def miss(report: PassReport, node: ir.Node, reason: str) -> None:
    """Record why ``node`` was left alone, in the report and on the node itself."""
    report.skip(node, reason)
    node.meta[MISS] = reason
