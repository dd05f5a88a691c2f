"""Gates in a graph: ``activation(gate) * up``, plain or clamped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optc.ir.functions import AttributeValue, is_op
from optc.ir.graph import constant


@dataclass(frozen=True)
class Gate:
    """``activation(gate) * up``, found at a Mul.

    Attributes:
        gate: What is activated.
        up: What the active gate is multiplied by.
        attributes: Those of ``optc::GatedActivation``.
        nodes: What computes it of gate and up; they end with that Mul.
    """

    gate: ir.Value
    up: ir.Value
    attributes: dict[str, AttributeValue]
    nodes: list[ir.Node]

    @property
    def label(self) -> str:
        """Its name in reports."""
        return f"{self.attributes['activation']}{', clamped' * ('limit' in self.attributes)}"


@dataclass(frozen=True)
class _Active:
    """An activation: its operand, attributes and nodes."""

    x: ir.Value
    attributes: dict[str, AttributeValue]
    nodes: list[ir.Node]


def find_gate(node: ir.Node) -> Gate | None:
    """The gate whose last Mul is ``node``."""
    if not is_op(node, "Mul"):
        return None
    for index in (0, 1):
        active, up = _activation(node.inputs[index]), node.inputs[1 - index]
        if active is not None and up is not None:
            gate = Gate(active.x, up, active.attributes, [*active.nodes, node])
            return _clamped(gate)
    return None


def _activation(value: ir.Value | None) -> _Active | None:
    """The activation that gives ``value``, used once."""
    node = _sole_producer(value)
    if node is None or node.inputs[0] is None:
        return None
    if is_op(node, "Gelu"):
        tanh = node.attributes.get_string("approximate", "none") == "tanh"
        return _Active(node.inputs[0], {"activation": "gelu_tanh" if tanh else "gelu"}, [node])
    if is_op(node, "Swish"):
        return _Active(node.inputs[0], _silu(node.attributes.get_float("alpha", 1.0)), [node])
    if is_op(node, "Mul"):
        for index in (0, 1):
            x, sigmoid = node.inputs[index], _sole_producer(node.inputs[1 - index])
            if x is None or sigmoid is None or not is_op(sigmoid, "Sigmoid"):
                continue
            if sigmoid.inputs[0] is x:
                return _Active(x, _silu(1.0), [sigmoid, node])
            scale = _sole_producer(sigmoid.inputs[0])
            found = None if scale is None else _with_number(scale, "Mul")
            if scale is not None and found is not None and found[0] is x:
                return _Active(x, _silu(found[1]), [scale, sigmoid, node])
    return None


def _silu(alpha: float) -> dict[str, AttributeValue]:
    plain: dict[str, AttributeValue] = {"activation": "silu"}
    return plain if alpha == 1 else {**plain, "alpha": alpha}


def _clamped(gate: Gate) -> Gate:
    """``gate`` with what is added to up and the limit of both taken in, if both are there to take:
    gate at most the limit, up within it on both sides."""
    add = _sole_producer(gate.up)
    shifted = None if add is None else _with_number(add, "Add")
    up, shift = (gate.up, 0.0) if shifted is None else shifted
    extra = [add] if add is not None and shifted is not None else []
    nodes = [*extra, *gate.nodes]
    held_gate, held_up = gate.gate.producer(), _sole_producer(up)
    more: dict[str, AttributeValue] = {"up_shift": shift} if shift else {}
    if held_gate is None or held_up is None or not _only_in(gate.gate, nodes):
        return Gate(gate.gate, up, {**gate.attributes, **more}, nodes)
    first, limit = _held(held_gate)
    second, around = _held(held_up)
    if first is None and second is None:
        return Gate(gate.gate, up, {**gate.attributes, **more}, nodes)
    ours = limit[0] is None and limit[1] is not None and around == (-limit[1], limit[1])
    if first is None or second is None or not ours or limit[1] is None or limit[1] <= 0:
        return gate
    attributes = {**gate.attributes, **more, "limit": limit[1]}
    return Gate(first, second, attributes, [held_gate, held_up, *nodes])


def _held(node: ir.Node) -> tuple[ir.Value | None, tuple[float | None, float | None]]:
    """The value that a Clip or Min holds between constants, and these; no value for other nodes."""
    given = [*node.inputs, None, None]
    if is_op(node, "Clip"):
        low, high = (None if bound is None else _number(bound) for bound in given[1:3])
        known = all(b is None or _number(b) is not None for b in given[1:3])
        return (given[0] if known else None), (low, high)
    least = _with_number(node, "Min")
    return (None, (None, None)) if least is None else (least[0], (None, least[1]))


def _with_number(node: ir.Node, op_type: str) -> tuple[ir.Value, float] | None:
    """The computed operand of a binary operator and the constant one."""
    if not is_op(node, op_type) or len(node.inputs) != 2:
        return None
    for index in (0, 1):
        number, value = _number(node.inputs[index]), node.inputs[1 - index]
        if number is not None and value is not None:
            return value, number
    return None


def _number(value: ir.Value | None) -> float | None:
    """The only element of a constant."""
    tensor = constant(value)
    if tensor is None or tensor.size != 1 or len(tensor.shape) > 1:
        return None
    return float(np.ravel(tensor.numpy())[0]) if tensor.dtype == ir.DataType.FLOAT else None


def _only_in(value: ir.Value, nodes: list[ir.Node]) -> bool:
    """True if nothing but ``nodes`` uses ``value``."""
    return not value.is_graph_output() and set(value.consumers()) <= set(nodes)


def _sole_producer(value: ir.Value | None) -> ir.Node | None:
    """The node that gives ``value``, if only one node uses it."""
    if value is None or len(value.consumers()) != 1 or value.is_graph_output():
        return None
    return value.producer()
