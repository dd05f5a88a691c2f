"""`ort-fused`: norms and gated activations as ONNX Runtime's own operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.emit import Emitter, dims_of
from optc.ir.functions import DOMAIN, is_op
from optc.ir.functions.token_wise import is_clamped_gate
from optc.ir.graph import remove_unused, replace_node
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport

CONTRIB = "com.microsoft"


@dataclass(frozen=True)
class FuseOperators(Pass):
    """Operators that ONNX Runtime has one kernel for.

    Legal cases:
        1. ``optc::AddRMSNorm``: SkipSimplifiedLayerNormalization;
        2. RMSNormalization of the last axis: SimplifiedLayerNormalization, which is the same with
           kernels on more providers; with an Add before it that nobody else reads, as in 1;
        3. ``optc::GatedActivation`` with SiLU: Split, QuickGelu and Mul.

    Other activations and head norms keep their functions.
    """

    name: ClassVar[str] = "ort-fused"
    after: ClassVar[tuple[str, ...]] = ("ort-matmuls",)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in list(model.graph):
            rule = _RULES.get((node.domain, node.op_type))
            emit = Emitter(model.graph, node.name or node.outputs[0].name or node.op_type)
            values = None if rule is None else rule(emit, node)
            if values is not None:
                replace_node([node], emit.nodes, node.outputs, values)
                report.add(node.op_type)
        model.opset_imports[CONTRIB] = 1
        remove_unused(model)
        return report


def _add_norm(emit: Emitter, node: ir.Node) -> list[ir.Value]:
    residual, x, scale = node.inputs
    norm = ir.Node(
        CONTRIB,
        "SkipSimplifiedLayerNormalization",
        [residual, x, scale],
        ir.convenience.convert_attributes({"epsilon": node.attributes.get_float("epsilon", 0.0)}),
        num_outputs=4,
        name=node.name,
    )
    for value in norm.outputs:
        value.type = ir.TensorType(ir.DataType.FLOAT)
    norm.outputs[1].name = norm.outputs[2].name = ""  # not computed
    emit.nodes.append(norm)
    return [norm.outputs[3], norm.outputs[0]]


def _norm(emit: Emitter, node: ir.Node) -> list[ir.Value] | None:
    if node.attributes.get_int("axis", -1) != -1:
        return None
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    dims = dims_of(node.outputs[0])
    x, scale = node.inputs[:2]
    add = _only_for(x)
    if add is not None:
        operands = [*add.inputs, scale]
        op_type = "SkipSimplifiedLayerNormalization"
        return [emit.op("norm", op_type, operands, dims, domain=CONTRIB, epsilon=epsilon)]
    op_type = "SimplifiedLayerNormalization"
    return [emit.op("norm", op_type, [x, scale], dims, axis=-1, epsilon=epsilon)]


def _only_for(x: ir.Value | None) -> ir.Node | None:
    """The Add of two values of one shape whose sum is ``x`` and has no other use."""
    add = None if x is None else x.producer()
    if x is None or add is None or not is_op(add, "Add"):
        return None
    dims = [None if v is None else dims_of(v) for v in add.inputs]
    alone = len(x.uses()) == 1 and not x.is_graph_output()
    return add if alone and dims[0] is not None and dims[0] == dims[1] else None


def _gated(emit: Emitter, node: ir.Node) -> list[ir.Value] | None:
    if node.attributes.get_string("activation", "") != "silu" or is_clamped_gate(node):
        return None
    dims = dims_of(node.outputs[0])
    split = ir.Node(
        "",
        "Split",
        [node.inputs[0]],
        ir.convenience.convert_attributes({"axis": -1, "num_outputs": 2}),
        num_outputs=2,
        name=f"{node.name}.split",
    )
    for value, name in zip(split.outputs, ("gate", "up"), strict=True):
        value.name, value.type = f"{node.outputs[0].name}.{name}", ir.TensorType(ir.DataType.FLOAT)
    emit.nodes.append(split)
    gate, up = split.outputs
    active = emit.op("active", "QuickGelu", [gate], dims, domain=CONTRIB, alpha=1.0)
    return [emit.op("out", "Mul", [active, up], dims)]


_RULES: dict[tuple[str, str], Callable[[Emitter, ir.Node], list[ir.Value] | None]] = {
    (DOMAIN, "AddRMSNorm"): _add_norm,
    ("", "RMSNormalization"): _norm,
    (DOMAIN, "GatedActivation"): _gated,
}
