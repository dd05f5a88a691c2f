"""`ort-fused`: norms and gated activations as ONNX Runtime's own operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.emit import Emitter, dims_of
from optc.ir.functions import DOMAIN
from optc.ir.graph import replace_node
from optc.pipeline.base import Pass, PassReport

CONTRIB = "com.microsoft"


@dataclass(frozen=True)
class FuseOperators(Pass):
    """Operators that ONNX Runtime has one kernel for.

    Legal cases:
        1. ``optc::AddRMSNorm``: SkipSimplifiedLayerNormalization;
        2. RMSNormalization of the last axis: SimplifiedLayerNormalization, which is the same with
           kernels on more providers;
        3. ``optc::GatedActivation`` with SiLU: Split, QuickGelu and Mul.

    Other activations and head norms keep their functions.
    """

    name: ClassVar[str] = "ort-fused"
    after: ClassVar[tuple[str, ...]] = ("ort-matmuls",)

    def run(self, model: ir.Model) -> PassReport:
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
    inputs = node.inputs[:2]
    return [emit.op("norm", "SimplifiedLayerNormalization", inputs, dims, axis=-1, epsilon=epsilon)]


def _gated(emit: Emitter, node: ir.Node) -> list[ir.Value] | None:
    if node.attributes.get_string("activation", "") != "silu":
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
