"""Factors of queries."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.dataflow import dims, operand, orders, rank, scalar, substitute


def take_factor(attention: ir.Node, report: PassReport) -> None:
    """A constant factor of all queries [B, H, S, D] of an ``ai.onnx Attention`` joins its scale, if
    nothing but a change of their layout lies between."""
    queries = operand(attention, 0)
    if rank(queries) != 4:
        return
    size = dims(queries)[-1] if dims(queries) else None
    value = queries
    while (node := value.producer()) is not None and len(value.uses()) == 1:
        if is_op(node, "Mul"):
            for x, other in orders(node):
                factor = scalar(other)
                if factor is not None and factor > 0 and isinstance(size, int):
                    scale = attention.attributes.get_float("scale", size**-0.5)
                    attention.attributes["scale"] = ir.AttrFloat32("scale", scale * factor)
                    substitute(value, x)
                    report.add("factors of queries")
                    return
        if not is_op(node, "Transpose", "Reshape"):
            return
        value = operand(node, 0)
