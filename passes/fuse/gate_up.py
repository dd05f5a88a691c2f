"""`fuse-gate-up`: gate and up projections become one matmul and ``optc::GatedActivation``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.functions import is_op, make_node
from optc.ir.graph import remove_unused, replace_node, width
from optc.ir.linear import linear_of, merge_linears
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.fuse.gates import Gate, find_gate


@dataclass(frozen=True)
class FuseGateUp(Pass):
    """``activation(gate) * up``, in either order; silu, gelu or gelu_tanh. A factor of the gate
    within silu's sigmoid, a constant added to up, and a limit that gate and up are held to (up on
    both sides) become attributes.

    Legal cases:
        1. gate and up are two linear layers over one operand, used here only: one matmul over
           the stacked rows, gate first;
        2. gate and up are the halves, in this order, of one Split: its operand is taken.
    """

    name: ClassVar[str] = "fuse-gate-up"
    phase: ClassVar[Phase] = Phase.FUSION
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS | Effect.MOVES_WEIGHTS
    expected: ClassVar[bool] = True
    before: ClassVar[tuple[str, ...]] = ("quantize-weights", "quantize-static")

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in list(model.graph):
            gate = find_gate(node)
            if gate is None:
                _note_ungated(node, report)
                continue
            both = _halves(gate) or _merged(model.graph, gate, report)
            if both is None:
                continue
            new = make_node(
                model,
                "GatedActivation",
                [both],
                gate.attributes,
                name=f"{node.name}.gated",
            )
            replace_node(gate.nodes, [new], gate.nodes[-1].outputs, new.outputs)
            report.add(gate.label)
        remove_unused(model)
        return report


def _note_ungated(node: ir.Node, report: PassReport) -> None:
    """Near misses at activations: another one, or one whose result is multiplied by nothing."""
    if is_op(node, "Relu"):
        report.skip(node, "a gate's activation must be silu, gelu or gelu_tanh")
    elif is_op(node, "Gelu", "Swish") and not any(
        is_op(user, "Mul") for user in node.outputs[0].consumers()
    ):
        report.skip(node, "its result is multiplied by nothing: the MLP has no gate")


def _halves(gate: Gate) -> ir.Value | None:
    """Case 2: the operand of the Split into gate and up."""
    split = gate.gate.producer()
    if split is None or not is_op(split, "Split") or list(split.outputs) != [gate.gate, gate.up]:
        return None
    return split.inputs[0] if width(gate.gate) == width(gate.up) else None


def _merged(graph: ir.Graph, gate: Gate, report: PassReport) -> ir.Value | None:
    """Case 1: one linear layer for both, inserted; its result."""
    first, second = linear_of(gate.gate), linear_of(gate.up)
    last = gate.nodes[-1]
    if first is None or second is None:
        report.skip(last, "gate and up are not results of linear layers")
        return None
    if first.x is not second.x:
        report.skip(last, "gate and up have different operands")
        return None
    if first.weight.rows_shape != second.weight.rows_shape:
        report.skip(last, "gate and up have different widths")
        return None
    users = {*gate.gate.consumers(), *gate.up.consumers()}
    if not users <= set(gate.nodes) or first.matmul is second.matmul:
        report.skip(last, "gate or up is used elsewhere too")
        return None
    nodes, result = merge_linears(graph, [first, second])
    graph.insert_before(gate.nodes[0], nodes)
    return result
