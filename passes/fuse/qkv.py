"""`fuse-qkv`: the three projections of an attention become one matmul and a Split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import constant_ints, int_initializer, is_constant, remove_unused, width
from optc.ir.linear import Linear, linear_of, merge_linears
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase

ATTENTIONS = ("Attention", "PagedAttention", "PackedAttention")


@dataclass(frozen=True)
class FuseQKV(Pass):
    """Legal cases, for the q, k and v of each attention traced back through norms and rotary:

    1. three different linear layers over one operand: one matmul over the stacked rows, biases
       stacked (zeros where there is none), then Split;
    2. the three outputs of one Split of one linear layer: fused already, counted as done;
    3. three Slices that cover the last axis of one linear layer's result in order: they become
       one Split.
    """

    name: ClassVar[str] = "fuse-qkv"
    phase: ClassVar[Phase] = Phase.FUSION
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS | Effect.MOVES_WEIGHTS
    expected: ClassVar[bool] = True
    before: ClassVar[tuple[str, ...]] = ("quantize-weights", "quantize-static")

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in [n for n in model.graph if is_op(n, *ATTENTIONS, domain=DOMAIN)]:
            sources = [_source(value) for value in node.inputs[:3]]
            if _one_split(sources):
                report.add("fused already")
                continue
            sizes = _slice_sizes(sources)
            if sizes:
                _split_slices(model.graph, [v for v in sources if v is not None], sizes)
                report.add("three slices of one matmul")
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
    """The result of a projection, before head norms and rotary embedding."""
    while value is not None and linear_of(value) is None:
        node = value.producer()
        if node is None or is_op(node, "Split", "Slice"):
            return value
        operands = [v for v in node.inputs if v is not None and not is_constant(v)]
        if node.op_type != "RotaryEmbedding" and len(operands) != 1:
            return value
        value = operands[0]
    return value


def _one_split(values: list[ir.Value | None]) -> bool:
    node = values[0].producer() if values[0] is not None else None
    return node is not None and is_op(node, "Split") and list(node.outputs) == values


def _slice_sizes(values: list[ir.Value | None]) -> list[int]:
    """Case 3: the widths of the three slices; empty if they do not cover one result in order."""
    nodes = [value.producer() if value is not None else None for value in values]
    stop, sizes = 0, []
    for node in nodes:
        if node is None or not is_op(node, "Slice") or node.inputs[0] is not _operand(nodes[0]):
            return []
        bounds = [constant_ints(value) for value in node.inputs[1:]]
        if len(bounds) < 3 or bounds[2] not in ([-1], [2]) or bounds[3:] not in ([], [[1]]):
            return []
        if bounds[0] != [stop] or not bounds[1]:
            return []
        low, stop = stop, min(bounds[1][0], _width(node))
        sizes.append(stop - low)
    linear = linear_of(_operand(nodes[0]))
    return sizes if linear is not None and stop == linear.weight.rows_shape[0] else []


def _operand(node: ir.Node | None) -> ir.Value | None:
    return None if node is None else node.inputs[0]


def _width(node: ir.Node) -> int:
    value = node.inputs[0]
    return (width(value) or 0) if value is not None else 0


def _split_slices(graph: ir.Graph, values: list[ir.Value], sizes: list[int]) -> None:
    """Replace the slices that give ``values`` by one Split."""
    nodes = [node for value in values if (node := value.producer()) is not None]
    whole = nodes[0].inputs[0]
    if whole is None:
        raise ValueError(f"{nodes[0].name}: a Slice of nothing")
    split = _split(graph, whole, sizes)
    graph.insert_before(min(nodes, key=list(graph).index), [split])
    for old, new in zip(values, split.outputs, strict=True):
        _take_over(old, new)
    graph.remove(nodes, safe=True)


def _split(graph: ir.Graph, whole: ir.Value, sizes: list[int]) -> ir.Node:
    return ir.Node(
        "",
        "Split",
        [whole, int_initializer(graph, sizes, f"{whole.name}.sizes")],
        ir.convenience.convert_attributes({"axis": -1}),
        num_outputs=len(sizes),
        name=f"{whole.name}.split",
    )


def _take_over(old: ir.Value, new: ir.Value) -> None:
    new.name, new.shape, new.type = old.name, old.shape, old.type
    old.name = f"{old.name}.old"
    ir.convenience.replace_all_uses_with(old, new, True)


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
    split = _split(graph, merged, sizes)
    # before the first of the old nodes: every user comes after it
    first = min((linear.matmul for linear in linears), key=list(graph).index)
    graph.insert_before(first, [*nodes, split])
    for linear, value in zip(linears, split.outputs, strict=True):
        _take_over(linear.output, value)
        graph.remove(linear.nodes[::-1], safe=True)
