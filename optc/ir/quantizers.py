"""The operators that quantize activations, and what each computes without that."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.functions import DOMAIN, attributes_of, is_op, make_node
from optc.ir.functions.hadamard import HADAMARD_DEFAULTS

#: What is left of each operator; None is its operand itself.
_FLOAT = {
    "QuantizeActivation": None,
    "RMSNormQuantize": "RMSNormalization",
    "AddRMSNormQuantize": "AddRMSNorm",
    "GatedActivationQuantize": "GatedActivation",
}


def is_quantizer(node: ir.Node | None) -> bool:
    """True if the last two outputs of ``node`` are a quantized activation and its scale."""
    return is_op(node, *_FLOAT, domain=DOMAIN)


def activation_bits(quantized: ir.Value | None) -> int:
    """Bits of a quantized activation, the first of a quantizer's last two outputs."""
    node = None if quantized is None else quantized.producer()
    return 8 if node is None else node.attributes.get_int("bits", 8)


class FloatOperands:
    """The float operands of a model's quantizers, for a rewrite of the operators that read them.

    Args:
        model: Gets nodes for float values that only quantizers held (`float_operand`).
    """

    def __init__(self, model: ir.Model) -> None:
        self._made = {n: float_operand(model, n) for n in model.graph if is_quantizer(n)}

    def __len__(self) -> int:
        return len(self._made)

    def of(self, quantized: ir.Value | None) -> ir.Value | None:
        """The float value behind the first output of a quantizer; None if it is none.

        An operand of ``QuantizeActivation`` is looked up now: the rewrite may have replaced the
        node that gave it before.
        """
        node = None if quantized is None else quantized.producer()
        if node is None or node not in self._made:
            return None
        bare = _FLOAT[node.op_type] is None and not _rotation(node)
        return node.inputs[0] if bare else self._made[node]


def float_operand(model: ir.Model, node: ir.Node) -> ir.Value | None:
    """The float value that ``node`` quantizes, computed by a new node before it if there is none.

    A sum that ``node`` gives besides is then that of the new node, everywhere.
    """
    op_type, rotation = _FLOAT[node.op_type], _rotation(node)
    value = node.inputs[0] if op_type is None else _float_result(model, node, op_type)
    if not rotation or value is None:
        return value
    turned = make_node(model, "BlockHadamard", [value], rotation, name=f"{node.name}.rotated")
    turned.outputs[0].name = f"{node.outputs[-2].name}.rotated"
    turned.outputs[0].shape = node.outputs[-2].shape
    _graph_of(node).insert_before(node, [turned])
    return turned.outputs[0]


def _rotation(node: ir.Node) -> dict[str, int]:
    """Attributes of the ``BlockHadamard`` that a quantizer contains; none where it has none."""
    block = node.attributes.get_int("hadamard", 0)
    return {"block": block, "width": node.attributes.get_int("width", 0)} if block else {}


def _graph_of(node: ir.Node) -> ir.Graph:
    if not isinstance(node.graph, ir.Graph):
        raise ValueError(f"{node.name}: node is in no graph")
    return node.graph


def _float_result(model: ir.Model, node: ir.Node, op_type: str) -> ir.Value:
    """The value that a quantizer rotates and rounds, computed by a new node before it."""
    quantized = node.outputs[-2]
    rounding = ("bits", *HADAMARD_DEFAULTS)
    attributes = {n: value for n, value in attributes_of(node).items() if n not in rounding}
    if op_type == "RMSNormalization":
        options = ir.convenience.convert_attributes({"axis": -1, **attributes})
        new = ir.Node("", op_type, node.inputs, options, name=node.name)
    else:
        new = make_node(model, op_type, node.inputs, attributes, name=node.name)
    for value in new.outputs:
        value.type = ir.TensorType(ir.DataType.FLOAT)
        value.shape = quantized.shape
    new.outputs[-1].name = f"{quantized.name}.float"
    _graph_of(node).insert_before(node, [new])
    if op_type == "AddRMSNorm":
        total = node.outputs[0]
        new.outputs[0].name, total.name = total.name, f"{total.name}.old"
        total.replace_all_uses_with(new.outputs[0], replace_graph_outputs=True)
    return new.outputs[-1]
