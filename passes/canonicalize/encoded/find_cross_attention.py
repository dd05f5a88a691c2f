"""`find-cross-attention`: attention to the states of an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.forms.decoder import CROSS, Exported
from optc.ir.functions import is_op, make_node
from optc.ir.graph import remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dataflow import dims, insert, miss, operand, rank, substitute
from optc.passes.canonicalize.encoded.index_rows import index_by_sequence, index_rows
from optc.passes.canonicalize.encoded.probed import scale_of, shows_all
from optc.passes.canonicalize.encoders.factors import take_factor
from optc.passes.canonicalize.encoders.positions import number_positions
from optc.passes.canonicalize.encoders.source import Source
from optc.passes.canonicalize.heads import Heads, fold, heads_of, split
from optc.passes.canonicalize.spelled.match import match
from optc.passes.canonicalize.spelled.region import ForeignError

_UNKNOWN = "not an attention to an encoder that I know"


@dataclass(frozen=True)
class FindCrossAttention(Pass):
    """A decoder of which inputs are the keys and values of an encoder's states.

    1. ``ai.onnx Attention`` over two such inputs [B, Hkv, P, D], without a mask or with one that
       shows all states, becomes ``optc::CrossAttention``, and the inputs [B, P, Hkv*D]; so do
       MatMul of queries and keys, a factor, Softmax and MatMul with values.
    2. What counts the tokens of a sequence becomes the input ``position_ids``, as `pack-rows`
       does it.
    3. Rows of a table that are looked up otherwise are by ``Gather`` and for each sequence.
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
        ids, states = graph.inputs[0], Exported.read(model).states
        _size_by_ids(ids, given)
        for node in list(graph):
            if is_op(node, "Attention"):
                take_factor(node, report)
                if node.inputs[1] in given:
                    _attend(model, node, states, report)
            elif is_op(node, "Softmax"):
                _spelled(model, node, given, states, report)
        remove_unused(model)
        for value in given:
            _check_unread(value, report)
            graph.inputs.remove(value)
        batch, tokens = (str(dim) for dim in dims(ids))
        index_by_sequence(graph, tokens)
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


def _attend(model: ir.Model, node: ir.Node, states: int, report: PassReport) -> None:
    """Legal case 1, as one operator."""
    q, keys, values = (operand(node, index) for index in range(3))
    heads = heads_of(q)
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    past = any(value is not None for value in node.inputs[4:])
    read = any(value.uses() for value in node.outputs[1:])
    causal = node.attributes.get_int("is_causal", 0)
    if causal or past or read or heads is None or not heads.tokens_last:
        miss(report, node, f"{_UNKNOWN}: it has a past")
        return
    if mask is not None:
        try:
            shows_all(model.graph, mask)
        except ForeignError as error:
            miss(report, node, f"{_UNKNOWN}: {error}")
            return
    scale = node.attributes.get_float("scale", heads.size**-0.5)
    found = _Found(node, q, heads, keys, values, scale, states)
    if result := _emit(model, found, report):
        substitute(node.outputs[0], result)


def _spelled(
    model: ir.Model, softmax: ir.Node, given: list[ir.Value], states: int, report: PassReport
) -> None:
    """Legal case 1, in several operators."""
    found = match(softmax)
    if isinstance(found, str) or found.k[0] not in given:
        return
    last, heads = found.results[0].producer(), heads_of(found.q)
    if last is None or heads is None or not heads.tokens_last or found.k[1] is not None:
        miss(report, softmax, f"{_UNKNOWN}: its queries are {dims(found.q)}")
        return
    try:
        scale = scale_of(model.graph, found.scores, found.products, heads.count)
    except ForeignError as error:
        miss(report, softmax, f"{_UNKNOWN}: {error}")
        return
    one = _Found(last, found.q, heads, found.k[0], found.v, scale, states)
    if result := _emit(model, one, report):
        for value in found.results:
            substitute(value, result)


@dataclass(frozen=True)
class _Found:
    """An attention to an encoder: what it is made of, and the node that it is put before."""

    node: ir.Node
    q: ir.Value
    heads: Heads
    keys: ir.Value
    values: ir.Value
    scale: float
    states: int


def _emit(model: ir.Model, found: _Found, report: PassReport) -> ir.Value | None:
    """The result [B, H, S, Dv] of ``optc::CrossAttention``; None where there is none."""
    node, heads = found.node, found.heads
    shared, size = dims(found.keys)[1], dims(found.values)[3]
    number = dims(found.keys)[2]
    count = number if isinstance(number, int) else found.states
    inputs = all(value.is_graph_input() for value in (found.keys, found.values))
    if not inputs or not isinstance(shared, int) or not isinstance(size, int) or not count:
        miss(report, node, f"{_UNKNOWN}: its keys are {dims(found.keys)}")
        return None
    if heads.count % shared:
        miss(report, node, f"{_UNKNOWN}: {shared} heads of keys")
        return None
    attributes = {"num_heads": heads.count, "kv_num_heads": shared, "scale": found.scale}
    folded = [_folded(model.graph, value, count) for value in (found.keys, found.values)]
    operands = [fold(node, found.q, heads), *folded]
    new = make_node(model, "CrossAttention", operands, attributes, name=node.name)
    batch, tokens, _ = dims(operands[0])
    new.outputs[0].shape = ir.Shape([batch, tokens, heads.count * size])
    insert(node, new)
    report.add("attention to an encoder")
    return split(node, new.outputs[0], Heads(heads.count, size, tokens_last=True))


def _folded(graph: ir.Graph, value: ir.Value, states: int) -> ir.Value:
    """The input with heads in its last axis; it stands where the other one did."""
    batch, heads, _, size = dims(value)
    shape = ir.Shape([batch, states, int(heads or 0) * int(size or 0)])
    new = ir.Value(name=str(value.name), type=value.type, shape=shape)
    graph.inputs.insert(list(graph.inputs).index(value), new)
    return new


def _check_unread(value: ir.Value, report: PassReport) -> None:
    for node in value.consumers():
        name = node.name or node.op_type
        skipped = [one.removeprefix(f"{name}: ") for one in report.skipped if name in one]
        skipped += [one for one in report.skipped if _UNKNOWN in one]
        raise UnsupportedError(
            skipped[0] if skipped else "it reads the states of an encoder",
            where=f"{name} ({node.op_type})",
            hint="attention to an encoder sees all states, and its keys and values are inputs",
        )
