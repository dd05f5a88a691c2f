"""`choose-experts`: layers that send every row through all experts ask those alone that count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.expert_rows import expert_rows
from optc.ir.functions import is_op, make_node
from optc.ir.graph import add_initializer, int_initializer, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.weights import as_lazy
from optc.passes.canonicalize.dataflow import dims, emit, insert, miss, operand, substitute
from optc.passes.canonicalize.experts.all_experts import (
    AllExperts,
    ForeignExpertsError,
    is_stacked_matmul,
    layer_of,
)
from optc.passes.canonicalize.experts.input_scores import ScaledRows, routing_of, scaled_rows
from optc.passes.canonicalize.experts.routing import Routing

#: Key in the ``meta`` of rows: the name of the stack that they are of.
_ROWS = "optc.rows_of"


@dataclass(frozen=True)
class ChooseExperts(Pass):
    """Rows [T, K] times scores of all experts, [E, T, K], that matmuls by stacks [E, K, N] and
    operators by rows make results of, which are summed over the experts, as Llama 4 has it.

    The scores are run on probes. If they are zero but for one expert of each token, and experts
    make zeros of zeros, then ``optc::TopKRouter`` chooses that expert, ``optc::ExpertMatMul`` takes
    the row times its score, and ``optc::CombineExperts`` weighs results by one.
    """

    name: ClassVar[str] = "choose-experts"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        known: set[ir.Value] = set()
        for node in list(model.graph):
            if node.graph is None or not is_stacked_matmul(node) or operand(node, 0) in known:
                continue
            known.add(operand(node, 0))
            try:
                layer = layer_of(model.graph, operand(node, 0))
                rows = scaled_rows(model.graph, layer.given)
                routing = routing_of(model, rows)
                if routing.top_k != 1:
                    raise ForeignExpertsError(f"{routing.top_k} experts get rows times a score")
                _replace(model, layer, rows, routing)
                report.add("one of all experts")
                known.update(v for inner in layer.nodes for v in inner.outputs)
            except ForeignExpertsError as reason:
                miss(report, node, f"not a layer of all experts that I know: {reason}")
        remove_unused(model)
        for value in [v for v in model.graph.initializers.values() if _ROWS in v.meta]:
            _take_over(model.graph, value, value.meta.pop(_ROWS))
        return report


def _take_over(graph: ir.Graph, value: ir.Value, name: str) -> None:
    """The name of the stack that nothing reads any more."""
    if name not in graph.initializers:
        value.name = name


def _replace(model: ir.Model, layer: AllExperts, rows: ScaledRows, routing: Routing) -> None:
    graph, end = model.graph, layer.total
    tokens = dims(rows.x)[0]
    router = make_node(model, "TopKRouter", [rows.logits], routing.attributes(), name=end.name)
    for value in router.outputs:
        value.shape = ir.Shape([tokens, 1])
    insert(end, router)
    weights, experts = router.outputs
    made = {layer.given: emit(end, "Mul", [rows.x, weights], rows.x)}
    one = add_initializer(graph, ir.tensor([1.0], ir.DataType.FLOAT), "weight_of_one")
    ones = emit(end, "Clip", [weights, one, one], weights)
    for node in layer.nodes:
        if is_stacked_matmul(node):
            _by_expert(model, node, layer, experts, made)
        elif is_op(node, "Reshape"):
            made[node.outputs[0]] = made[operand(node, 0)]
        else:
            _copy(node, end, made, tokens)
    sources = [made[operand(end, 0)], ones]
    combine = make_node(model, "CombineExperts", sources, name=f"{end.name}.sum")
    combine.outputs[0].shape = ir.Shape(dims(end.outputs[0]))
    insert(end, combine)
    substitute(end.outputs[0], combine.outputs[0])


def _by_expert(
    model: ir.Model,
    node: ir.Node,
    layer: AllExperts,
    experts: ir.Value,
    made: dict[ir.Value, ir.Value],
) -> None:
    """The matmul by a stack becomes one by the chosen expert."""
    stack, x = operand(node, 1), operand(node, 0)
    if stack.const_value is None:
        raise ValueError(f"{node.name}: its weight is no constant")
    weight = expert_rows(as_lazy(stack.const_value), transposed=True)
    rows = add_initializer(model.graph, weight, f"{stack.name}.rows")
    rows.meta[_ROWS] = str(stack.name)
    attributes = {"num_experts": layer.count, "spread": int(x is layer.given)}
    new = make_node(model, "ExpertMatMul", [made[x], experts, rows], attributes, name=node.name)
    _, tokens, width = dims(node.outputs[0])
    new.outputs[0].shape = ir.Shape([tokens, 1, width])
    insert(layer.total, new)
    made[node.outputs[0]] = new.outputs[0]


def _copy(
    node: ir.Node, end: ir.Node, made: dict[ir.Value, ir.Value], tokens: int | str | None
) -> None:
    """``node`` on the rows of chosen experts [T, 1, N]."""
    graph = end.graph
    inputs = [made.get(v, v) if v is not None else None for v in node.inputs]
    attributes = [a for a in node.attributes.values() if a.name != "axis"]
    if is_op(node, "Split"):
        attributes.append(ir.AttrInt64("axis", -1))
    elif is_op(node, "Slice") and isinstance(graph, ir.Graph):
        inputs[3] = int_initializer(graph, [-1], "last_axis")
    copy = ir.Node(
        "", node.op_type, inputs, attributes, num_outputs=len(node.outputs), name=node.name
    )
    for old, new in zip(node.outputs, copy.outputs, strict=True):
        new.type, new.shape = old.type, ir.Shape([tokens, 1, dims(old)[-1]])
        made[old] = new
    insert(end, copy)
