"""`fuse-qkv`: the three projections of an attention become one matmul and a Split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import int_initializer, is_constant, remove_unused
from optc.ir.linear import Linear, linear_of, merge_linears
from optc.pipeline.base import Pass, PassReport

ATTENTIONS = ("Attention", "PagedAttention")


@dataclass(frozen=True)
class FuseQKV(Pass):
    """Legal cases, for the q, k and v of each attention traced back through norms and rotary:

    1. three different linear layers over one operand: one matmul over the stacked rows, biases
       stacked (zeros where there is none), then Split;
    2. the three outputs of one Split of one linear layer: fused already, counted as done.
    """

    name: ClassVar[str] = "fuse-qkv"
    required: ClassVar[bool] = True

    def run(self, model: ir.Model) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in [n for n in model.graph if is_op(n, *ATTENTIONS, domain=DOMAIN)]:
            sources = [_source(value) for value in node.inputs[:3]]
            if _one_split(sources):
                report.add("fused already")
                continue
            linears = [linear_of(value) for value in sources]
            reason = _refusal(linears)
            if reason:
                report.skip(node, reason)
                continue
            _merge(model.graph, [linear for linear in linears if linear is not None])
            report.add("three matmuls in one")
        remove_unused(model)
        return report


def _source(value: ir.Value | None) -> ir.Value | None:
    """What a projection gave, before head norms and rotary embedding."""
    while value is not None and linear_of(value) is None:
        node = value.producer()
        if node is None or is_op(node, "Split"):
            return value
        operands = [v for v in node.inputs if v is not None and not is_constant(v)]
        if node.op_type != "RotaryEmbedding" and len(operands) != 1:
            return value
        value = operands[0]
    return value


def _one_split(values: list[ir.Value | None]) -> bool:
    node = values[0].producer() if values[0] is not None else None
    return node is not None and is_op(node, "Split") and list(node.outputs) == values


def _refusal(linears: list[Linear | None]) -> str:
    """Empty if the three layers can be merged, else why not."""
    found = [linear for linear in linears if linear is not None]
    if len(found) != 3:
        return "q, k and v are not results of linear layers"
    if len({id(linear.matmul) for linear in found}) != 3:
        return "q, k and v share a linear layer without a Split of all three"
    if any(linear.x is not found[0].x for linear in found):
        return "q, k and v have different operands"
    if len({linear.weight.dtype for linear in found}) != 1:
        return "q, k and v have weights of different types"
    return ""


def _merge(graph: ir.Graph, linears: list[Linear]) -> None:
    nodes, merged = merge_linears(graph, linears)
    sizes = [linear.weight.rows_shape[0] for linear in linears]
    split = ir.Node(
        "",
        "Split",
        [merged, int_initializer(graph, sizes, f"{merged.name}.sizes")],
        ir.convenience.convert_attributes({"axis": -1}),
        num_outputs=len(linears),
        name=f"{merged.name}.split",
    )
    # before the first of the old nodes: every user comes after it
    first = min((linear.matmul for linear in linears), key=list(graph).index)
    graph.insert_before(first, [*nodes, split])
    for linear, value in zip(linears, split.outputs, strict=True):
        old = linear.output
        value.name, value.shape, value.type = old.name, old.shape, old.type
        old.name = f"{old.name}.old"
        old.replace_all_uses_with(value)
        graph.remove(linear.nodes[::-1], safe=True)
