"""The operators that quantize activations, and what each computes without that."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.functions import DOMAIN, attributes_of, is_op, make_node

#: What is left of each operator; None is its operand itself.
_FLOAT = {
    "QuantizeActivation": None,
    "RMSNormQuantize": "RMSNormalization",
    "AddRMSNormQuantize": "AddRMSNorm",
    "GatedActivationQuantize": "GatedActivation",
}


def is_quantizer(node: ir.Node | None) -> bool:
    """Whether the last two outputs of ``node`` are a quantized activation and its scale."""
    return is_op(node, *_FLOAT, domain=DOMAIN)


def activation_bits(quantized: ir.Value | None) -> int:
    """Bits of a quantized activation, the first of a quantizer's last two outputs."""
    node = None if quantized is None else quantized.producer()
    return 8 if node is None else node.attributes.get_int("bits", 8)


class FloatOperands:
    """What the quantizers of a model quantize, for a rewrite of the operators that read them.

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
        return node.inputs[0] if _FLOAT[node.op_type] is None else self._made[node]


def float_operand(model: ir.Model, node: ir.Node) -> ir.Value | None:
    """The float value that ``node`` quantizes, computed by a new node before it if there is none.

    A sum that ``node`` gives besides is then that of the new node, everywhere.
    """
    op_type = _FLOAT[node.op_type]
    if op_type is None:
        return node.inputs[0]
    quantized = node.outputs[-2]
    attributes = {name: value for name, value in attributes_of(node).items() if name != "bits"}
    if op_type == "RMSNormalization":
        options = ir.convenience.convert_attributes({"axis": -1, **attributes})
        new = ir.Node("", op_type, node.inputs, options, name=node.name)
    else:
        new = make_node(model, op_type, node.inputs, attributes, name=node.name)
    for value in new.outputs:
        value.type = ir.TensorType(ir.DataType.FLOAT)
        value.shape = quantized.shape
    new.outputs[-1].name = f"{quantized.name}.float"
    graph = node.graph
    if graph is None:
        raise ValueError(f"{node.name}: node is in no graph")
    graph.insert_before(node, [new])
    if op_type == "AddRMSNorm":
        total = node.outputs[0]
        new.outputs[0].name, total.name = total.name, f"{total.name}.old"
        total.replace_all_uses_with(new.outputs[0], replace_graph_outputs=True)
    return new.outputs[-1]
