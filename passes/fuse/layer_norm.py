"""`fuse-layer-norm`: layer norms of rows take the residual before and the rounding behind
them, and activations without a gate their rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.forms.form import Form
from optc.ir.forms.packed import PackedRows
from optc.ir.forms.ragged import RaggedStep
from optc.ir.functions import DOMAIN, AttributeValue, attributes_of, is_op, make_node
from optc.ir.graph import is_constant
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase


@dataclass(frozen=True)
class FuseLayerNorm(Pass):
    """LayerNormalization of the last axis, and ``Gelu``, over rows of encoders and decoders.

    Legal cases:
        1. an Add of two computed values whose sum a norm reads, and others may, joins the norm;
        2. one ``optc::QuantizeActivation`` of the norm's result, which others may read, too, does;
        3. ``Gelu`` whose result is only quantized becomes ``optc::ActivationQuantize``.

    Only engines of TVM for CPUs have such kernels.
    """

    name: ClassVar[str] = "fuse-layer-norm"
    phase: ClassVar[Phase] = Phase.FUSION
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS
    expected: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (PackedRows, RaggedStep)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in list(model.graph):
            if is_op(node, "LayerNormalization"):
                _fuse_norm(model, node, report)
            elif is_op(node, "Gelu"):
                _fuse_activation(model, node, report)
        return report


def _fuse_norm(model: ir.Model, norm: ir.Node, report: PassReport) -> None:
    if norm.attributes.get_int("axis", -1) != -1:
        report.skip(norm, "the norm is not over the last axis")
        return
    add, quantize = _residual(norm), _rounding(norm.outputs[0])
    if add is None and quantize is None:
        report.skip(norm, "it follows no sum, and nothing rounds its result")
        return
    op_type = f"{'Add' if add else ''}LayerNorm{'Quantize' if quantize else ''}"
    operands = [*(add.inputs if add else norm.inputs[:1]), *norm.inputs[1:]]
    attributes: dict[str, AttributeValue] = {
        "epsilon": norm.attributes.get_float("epsilon", 1e-5),
        **(attributes_of(quantize) if quantize else {}),
    }
    new = make_node(model, op_type, operands, attributes, name=norm.name)
    old = [
        *(add.outputs if add else []),
        norm.outputs[0],
        *(quantize.outputs if quantize else []),
    ]
    # where the norm stands: who reads the sum and comes before it, reads it from an Add of its own
    _replace(model.graph, norm, new, [n for n in (quantize, norm, add) if n is not None], old)
    report.add(op_type)


def _residual(norm: ir.Node) -> ir.Node | None:
    """The sum of two computed values that the norm reads, if nobody reads it before the norm."""
    value = norm.inputs[0]
    add = None if value is None else value.producer()
    if value is None or add is None or not is_op(add, "Add") or value.is_graph_output():
        return None
    if any(is_constant(operand) for operand in add.inputs):
        return None
    if any(v is None or v.shape != value.shape for v in add.inputs):
        return None
    graph = norm.graph
    place = {node: at for at, node in enumerate(graph)} if graph is not None else {}
    return add if all(place[user] >= place[norm] for user in value.consumers()) else None


def _rounding(value: ir.Value) -> ir.Node | None:
    """The only node that quantizes ``value``."""
    found = [n for n in value.consumers() if is_op(n, "QuantizeActivation", domain=DOMAIN)]
    return found[0] if len(found) == 1 else None


def _fuse_activation(model: ir.Model, node: ir.Node, report: PassReport) -> None:
    result = node.outputs[0]
    quantize = _rounding(result)
    if quantize is None or len(result.uses()) != 1 or result.is_graph_output():
        report.skip(node, "its result is not only quantized")
        return
    tanh = node.attributes.get_string("approximate", "none") == "tanh"
    attributes: dict[str, AttributeValue] = {
        "activation": "gelu_tanh" if tanh else "gelu",
        **attributes_of(quantize),
    }
    new = make_node(model, "ActivationQuantize", [node.inputs[0]], attributes, name=node.name)
    _replace(model.graph, node, new, [quantize, node], list(quantize.outputs))
    report.add("ActivationQuantize")


def _replace(
    graph: ir.Graph, at: ir.Node, new: ir.Node, gone: list[ir.Node], old: list[ir.Value]
) -> None:
    """Put ``new`` where ``at`` stands, its outputs in the place of ``old``."""
    graph.insert_before(at, [new])
    for before, after in zip(old, new.outputs, strict=True):
        after.name, after.shape, after.type = before.name, before.shape, before.type
        before.name = f"{before.name}.old"
    for node in gone:
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)
    ir.convenience.replace_all_uses_with(old, new.outputs, True)
    graph.remove(gone, safe=True)
