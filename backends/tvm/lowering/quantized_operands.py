"""The operands of quantized matmuls and lookups: what kernels take, and in which form."""

from __future__ import annotations

import onnx_ir as ir

from optc.backends.tvm.lowering.walk import SUM_WIDTH, Lowering, Refused
from optc.backends.tvm.weights.weight_layouts import WeightParts
from optc.ir.functions import operand

#: Types of weights that float matmuls take.
FLOATS = (ir.DataType.FLOAT, ir.DataType.BFLOAT16)
#: Types of quantized weights, by whether there are zero points.
_INTEGERS = {
    False: (ir.DataType.INT8, ir.DataType.INT4),
    True: (ir.DataType.UINT8, ir.DataType.UINT4),
}


def group_check(node: ir.Node) -> str:
    """Empty if kernels take its bits and groups, else the reason."""
    bits = node.attributes.get_int("bits", 0)
    group = node.attributes.get_int("group_size", 0)
    known = (6, 5, 4, 3, 2) if _has_integer_scales(node) else (4, 8)
    zeros = operand(node, "w_zero_point")
    if zeros is not None and zeros.dtype == ir.DataType.FLOAT and (bits != 4 or not group):
        return "float zero points are of 4-bit values in groups"
    if bits not in known or group < 0 or group % SUM_WIDTH:
        return f"no kernel for {bits} bits in groups of {group}"
    return ""


def weight_parts(lowering: Lowering, node: ir.Node) -> WeightParts:
    """The operands that make up its weight.

    Raises:
        Refused: One is not constant, or of a type that no kernel takes.
    """

    def optional(name: str, what: str) -> ir.TensorProtocol | None:
        value = operand(node, name)
        return None if value is None else lowering.initializer(value, what)

    parts = WeightParts(
        values=lowering.initializer(operand(node, "weight"), "weight"),
        scales=lowering.initializer(operand(node, "w_scale"), "scale"),
        zero_points=optional("w_zero_point", "zero point"),
        group_scales=optional("w_group_scale", "group scale"),
        bits=node.attributes.get_int("bits", 0),
        group_size=node.attributes.get_int("group_size", 0),
    )
    if ir.DataType(parts.values.dtype) not in _INTEGERS[parts.zero_points is not None]:
        how = "without" if parts.zero_points is None else "with"
        raise Refused(f"no kernel for {parts.values.dtype} weights {how} zero points")
    return parts


def is_two_level(lowering: Lowering, node: ir.Node) -> bool:
    """True if the weight is packed with integer scales."""
    return lowering.two_level and _has_integer_scales(node)


def _has_integer_scales(node: ir.Node) -> bool:
    return operand(node, "w_group_scale") is not None


def zero_form(*, zeros: bool, floats: bool) -> dict[str, bool]:
    """The part of a kernel's config about zero points, which floats have as minimums."""
    return {"asymmetric": zeros and not floats} | ({"minimums": True} if zeros and floats else {})


def packed_form(lowering: Lowering, node: ir.Node) -> dict[str, int | bool]:
    """Bits and group size of the packed weight, which is int8 per channel where the kernels know
    no integer scales."""
    if _has_integer_scales(node) and not lowering.two_level:
        return {"bits": 8, "group_size": 0}
    return {name: node.attributes.get_int(name, 0) for name in ("bits", "group_size")}
