"""`fuse-norm-quantize`: activation quantization moves into the operator that feeds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.functions import DOMAIN, AttributeValue, attributes_of, is_op, make_node
from optc.ir.graph import replace_node
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase


@dataclass(frozen=True)
class FuseNormQuantize(Pass):
    """``optc::QuantizeActivation`` as the only user of what it quantizes.

    Legal cases, by the operator that computes its operand:
        0. ``optc::BlockHadamard`` joins it, and one of the others may follow;
        1. RMSNormalization of the last axis becomes ``optc::RMSNormQuantize``;
        2. ``optc::AddRMSNorm`` becomes ``optc::AddRMSNormQuantize``, the sum staying float;
        3. ``optc::GatedActivation`` becomes ``optc::GatedActivationQuantize``.
    """

    name: ClassVar[str] = "fuse-norm-quantize"
    phase: ClassVar[Phase] = Phase.FUSION
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS
    expected: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("quantize-weights",)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for found in [n for n in model.graph if is_op(n, "QuantizeActivation", domain=DOMAIN)]:
            quantize = _with_rotation(model, found, report)
            value = quantize.inputs[0]
            source = value.producer() if value is not None else None
            if value is None or source is None:
                continue
            fused = _fused(model, source, value, quantize)
            if fused is None:
                report.skip(quantize, f"its operand is a result of {source.op_type}")
                continue
            if len(value.uses()) != 1 or value.is_graph_output():
                report.skip(quantize, f"the float result of {source.name} is used too")
                continue
            _replace(source, quantize, fused)
            report.add(fused.op_type)
        return report


def _with_rotation(model: ir.Model, quantize: ir.Node, report: PassReport) -> ir.Node:
    """The quantization with the rotation of its operand in it, if there is one for it alone."""
    value = quantize.inputs[0]
    rotation = None if value is None else value.producer()
    if value is None or rotation is None or not is_op(rotation, "BlockHadamard", domain=DOMAIN):
        return quantize
    if len(value.uses()) != 1 or "inverse" in rotation.attributes:
        return quantize
    stated = attributes_of(rotation)
    attributes = {"hadamard": stated["block"], "width": stated["width"], **attributes_of(quantize)}
    new = make_node(model, "QuantizeActivation", rotation.inputs, attributes, name=quantize.name)
    replace_node([rotation, quantize], [new], quantize.outputs, new.outputs)
    report.add("BlockHadamard")
    return new


def _fused(model: ir.Model, source: ir.Node, value: ir.Value, quantize: ir.Node) -> ir.Node | None:
    """The fused form of ``source`` with its quantization; None if there is none."""
    if is_op(source, "RMSNormalization") and source.attributes.get_int("axis", -1) == -1:
        op_type = "RMSNormQuantize"
    elif is_op(source, "AddRMSNorm", domain=DOMAIN) and value is source.outputs[1]:
        op_type = "AddRMSNormQuantize"
    elif is_op(source, "GatedActivation", domain=DOMAIN):
        op_type = "GatedActivationQuantize"
    else:
        return None
    attributes: dict[str, AttributeValue]
    if op_type == "GatedActivationQuantize":
        attributes = attributes_of(source)
    else:
        attributes = {"epsilon": source.attributes.get_float("epsilon", 1e-5)}
    attributes |= attributes_of(quantize)
    return make_node(model, op_type, source.inputs, attributes, name=source.name)


def _replace(source: ir.Node, quantize: ir.Node, fused: ir.Node) -> None:
    """Put ``fused`` where ``source`` stands: the float sum of an AddRMSNorm may be used before
    the place of the quantization."""
    graph = source.graph
    if graph is None:
        raise ValueError(f"{source.name}: node is in no graph")
    graph.insert_before(source, [fused])
    old = [*list(source.outputs)[:-1], *quantize.outputs]
    for before, after in zip(old, fused.outputs, strict=True):
        after.name, after.shape, after.type = before.name, before.shape, before.type
        before.name = f"{before.name}.old"
    ir.convenience.replace_all_uses_with(old, fused.outputs, True)
    graph.remove([quantize, source], safe=True)
