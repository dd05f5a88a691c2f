"""`find-cross-attention`: attention to the states of an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.forms.decoder import CROSS
from optc.ir.functions import is_op, make_node
from optc.ir.graph import remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dataflow import dims, insert, miss, operand, rank, substitute
from optc.passes.canonicalize.encoded.factors import take_factor
from optc.passes.canonicalize.encoded.index_rows import index_rows
from optc.passes.canonicalize.encoders.positions import number_positions
from optc.passes.canonicalize.encoders.source import Source
from optc.passes.canonicalize.heads import Heads, fold, heads_of, split


@dataclass(frozen=True)
class FindCrossAttention(Pass):
    """A decoder of which inputs are the keys and values of an encoder's states.

    1. ``ai.onnx Attention`` without a mask, over two such inputs [B, Hkv, P, D], becomes
       ``optc::CrossAttention``, and the inputs [B, P, Hkv*D].
    2. What counts the tokens of a sequence becomes the input ``position_ids``, as `pack-rows`
       does it.
    3. ``GatherND`` of the rows of a table becomes ``Gather``.
    4. A factor of all queries of an attention, to its tokens too, joins its scale.

    Other decoders stay as they are.
    """

    name: ClassVar[str] = "find-cross-attention"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            UnsupportedError: An input of an encoder's states is read by something else.
        """
        report, graph = PassReport(), model.graph
        given = [v for v in graph.inputs if str(v.name).startswith(CROSS) and rank(v) == 4]
        if not given:
            return report
        ids = graph.inputs[0]
        _size_by_ids(ids, given)
        for node in [node for node in graph if is_op(node, "Attention")]:
            take_factor(node, report)
            if node.inputs[1] in given:
                _attend(model, node, report)
        remove_unused(model)
        for value in given:
            _check_unread(value, report)
            graph.inputs.remove(value)
        batch, tokens = (str(dim) for dim in dims(ids))
        number_positions(model, Source(graph, ids, None, None, batch, tokens), report)
        index_rows(graph, report)
        remove_unused(model)
        return report


def _size_by_ids(ids: ir.Value, given: list[ir.Value]) -> None:
    """The batch is counted by the ids, wherever a graph counts it by an encoder's states."""
    for node in [node for value in given for node in value.consumers()]:
        first = (node.attributes.get_int("start", 0), node.attributes.get_int("end", -1)) == (0, 1)
        if is_op(node, "Shape") and first:
            node.replace_input_with(0, ids)


def _attend(model: ir.Model, node: ir.Node, report: PassReport) -> None:
    """Legal case 1."""
    q, keys, values = (operand(node, index) for index in range(3))
    heads = heads_of(q)
    masked = any(value is not None for value in node.inputs[3:])
    read = any(value.uses() for value in node.outputs[1:])
    causal = node.attributes.get_int("is_causal", 0)
    if (
        causal
        or masked
        or read
        or not values.is_graph_input()
        or heads is None
        or not heads.tokens_last
    ):
        miss(report, node, "not an attention to an encoder that I know: it has a mask or a past")
        return
    shared, size = dims(keys)[1], dims(values)[3]
    if not isinstance(shared, int) or not isinstance(size, int) or heads.count % shared:
        miss(report, node, f"not an attention to an encoder that I know: {shared} heads of keys")
        return
    attributes = {
        "num_heads": heads.count,
        "kv_num_heads": shared,
        "scale": node.attributes.get_float("scale", heads.size**-0.5),
    }
    operands = [fold(node, q, heads), _folded(model.graph, keys), _folded(model.graph, values)]
    new = make_node(model, "CrossAttention", operands, attributes, name=node.name)
    batch, tokens, _ = dims(operands[0])
    new.outputs[0].shape = ir.Shape([batch, tokens, heads.count * size])
    insert(node, new)
    result = Heads(heads.count, size, tokens_last=True)
    substitute(node.outputs[0], split(node, new.outputs[0], result))
    report.add("attention to an encoder")


def _folded(graph: ir.Graph, value: ir.Value) -> ir.Value:
    """The input with heads in its last axis; it stands where the other one did."""
    batch, heads, states, size = dims(value)
    shape = ir.Shape([batch, states, int(heads or 0) * int(size or 0)])
    new = ir.Value(name=str(value.name), type=value.type, shape=shape)
    graph.inputs.insert(list(graph.inputs).index(value), new)
    return new


def _check_unread(value: ir.Value, report: PassReport) -> None:
    for node in value.consumers():
        name = node.name or node.op_type
        skipped = [one.removeprefix(f"{name}: ") for one in report.skipped if name in one]
        raise UnsupportedError(
            skipped[0] if skipped else "it reads the states of an encoder",
            where=f"{name} ({node.op_type})",
            hint="attention to an encoder has no mask, and its keys and values are inputs",
        )
