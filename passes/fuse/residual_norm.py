"""`fuse-residual-norm`: a residual Add and the norm of its sum become ``optc::AddRMSNorm``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.functions import is_op, make_node
from optc.ir.graph import is_constant
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase

_NORMS = ("RMSNormalization", "LayerNormalization")


@dataclass(frozen=True)
class FuseResidualNorm(Pass):
    """Add of two computed values whose sum a RMSNormalization of the last axis and others use.

    The operand that was computed first is the residual (the sum is the same in either order).
    """

    name: ClassVar[str] = "fuse-residual-norm"
    phase: ClassVar[Phase] = Phase.FUSION
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS
    expected: ClassVar[bool] = True

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report, others = PassReport(), PassReport()
        for norm in [n for n in model.graph if is_op(n, *_NORMS)]:
            add = norm.inputs[0].producer() if norm.inputs[0] is not None else None
            if add is None or not is_op(add, "Add"):
                others.skip(norm, "its operand is no sum")
                continue
            reason = _refusal(add, norm)
            if reason:
                report.skip(norm, reason)
                continue
            _fuse(model, add, norm)
            report.add("add and norm")
        report.skipped += others.skipped  # the nearer misses first
        return report


def _refusal(add: ir.Node, norm: ir.Node) -> str:
    if not is_op(norm, "RMSNormalization"):
        return f"a {norm.op_type} is not fused with its Add"
    if any(is_constant(value) for value in add.inputs):
        return "the Add is a bias, not a residual"
    if len(add.outputs[0].consumers()) < 2:
        return "the sum is not used beside the norm"
    if norm.attributes.get_int("axis", -1) != -1:
        return "the norm is not over the last axis"
    scale = norm.inputs[1]
    return "" if scale is not None and scale.is_initializer() else "the norm's scale is computed"


def _fuse(model: ir.Model, add: ir.Node, norm: ir.Node) -> None:
    place = {node: index for index, node in enumerate(model.graph)}

    def computed_at(value: ir.Value) -> int:
        producer = value.producer()
        return -1 if producer is None else place[producer]

    operands = sorted((value for value in add.inputs if value is not None), key=computed_at)
    total, normed = add.outputs[0], norm.outputs[0]
    new = make_node(
        model,
        "AddRMSNorm",
        [*operands, norm.inputs[1]],
        {"epsilon": norm.attributes.get_float("epsilon", 1e-5)},
        name=norm.name,
    )
    for old, value in zip((total, normed), new.outputs, strict=True):
        value.name, value.shape, value.type = old.name, old.shape, old.type
        old.name = f"{old.name}.old"
    # at the Add, so that every user of the sum comes after it
    model.graph.insert_before(add, [new])
    norm.replace_input_with(0, None)
    ir.convenience.replace_all_uses_with([total, normed], new.outputs, True)
    model.graph.remove([norm, add], safe=True)
