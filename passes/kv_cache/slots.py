"""`kv-slots`: turn the ragged step over paged pools into a batched step over contiguous slots."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.forms.form import Form
from optc.ir.forms.kv_pools import KVPools
from optc.ir.forms.ragged import MEDUSA_LOGITS, TREE_PARENT, RaggedStep
from optc.ir.forms.static_kv import StaticKV
from optc.ir.functions import DOMAIN, attributes_of, is_op
from optc.ir.graph import int_initializer, is_constant, remove_unused, replace_node
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.kv_cache.slot_attention import add_slots, unmerged

_ATTENTIONS = ("PagedAttention", "RotaryPagedAttention")
#: Inputs of the ragged step that go away, besides the pools.
_RAGGED_INPUTS = ("slot_mapping", "query_starts", "kv_lengths", "block_tables", "logit_rows")


@dataclass(frozen=True)
class KVSlots(Pass):
    """The ragged step becomes the slot form (docs/normal-form.md), for engines without paged KV.

    Legal cases:
        1. ``optc::PagedAttention`` becomes ``optc::SlotAttention``;
        2. ``optc::RotaryPagedAttention`` is taken apart again: Split, head norms, and the standard
           RotaryEmbedding; so is ``optc::RotaryEmbedding``;
        3. Gather of the wanted rows becomes GatherND by sequence;
        4. everything else works on the last axis alone (`token_rows`) and stays.

    Keys and values are float32 whatever the type of the pools was, those of the latest tokens too.
    All layers are one KV group: windows are in the attentions' masks, and slots keep every token.
    """

    name: ClassVar[str] = "kv-slots"
    phase: ClassVar[Phase] = Phase.CACHE
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (RaggedStep,)
    gives: ClassVar[type[Form]] = StaticKV

    def requires(self, model: ir.Model) -> None:
        """The step has no trees, adapters, heads, states of an encoder or convolutions.

        Raises:
            UnsupportedError: It has; slots have no place for these.
        """
        step = RaggedStep.read(model)
        more = [TREE_PARENT] if step.tree else []
        more += ["adapters"] if step.adapters is not None else []
        more += [MEDUSA_LOGITS] if step.accept_rates else []
        count = len(more)  # what can be left out
        more += ["the states of an encoder"] if step.encoded else []
        found = {node.op_type for node in model.graph if node.domain == DOMAIN}
        more += ["rows that convolutions read"] if "PagedCausalConv" in found else []
        more += ["states of linear attention"] if "PagedLinearAttention" in found else []
        if more:
            raise UnsupportedError(
                f"slots have no place for {', '.join(more)}",
                where=f"pass {self.name}",
                hint="compile without LoRA adapters, Medusa heads and trees of drafts, or for TVM"
                if len(more) == count
                else "compile it for TVM: --backend tvm",
            )

    def ensures(self, model: ir.Model) -> None:
        """No paged attention is left."""
        left = [n for n in model.graph if is_op(n, *_ATTENTIONS, domain=DOMAIN)]
        if left:
            raise RuntimeError(f"kv-slots left {len(left)} attentions")

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            UnsupportedError: A node works on the rows of the step themselves.
        """
        report = PassReport()
        graph = model.graph
        attentions = [n for n in graph if is_op(n, *_ATTENTIONS, domain=DOMAIN)]
        layers = RaggedStep.read(model).kv.layers[: len(attentions)]  # behind them: latest tokens
        inputs = {str(value.name): value for value in graph.inputs}
        for name in ("tokens", "positions"):
            inputs[name].shape = ir.Shape(["B", "S"])
        writes = _input("write_indices", ["B"])
        wanted = _input("logit_index", ["B", "R"])
        narrow = {layer.dtype for layer in layers} - {"float32"}
        for node in attentions:
            merged = node.op_type != "PagedAttention"
            plain = unmerged(model, node) if merged else node
            add_slots(model, plain, writes)
            report.add("taken apart" if merged else "attention")
        for node in [n for n in graph if is_op(n, "RotaryEmbedding", domain=DOMAIN)]:
            _standard_rotary(node)
        _gather_by_sequence(graph, inputs["logit_rows"], wanted)
        _replace_inputs(graph, writes, wanted)
        _restate_shapes(graph)
        wide = tuple(replace(layer, group=0, dtype="float32") for layer in layers)
        StaticKV(KVPools.grouped_by_window((0,), wide)).attach(model)
        remove_unused(model)
        report.facts = {"layers": len(layers), "pools_were": sorted(narrow)}
        return report


def _input(name: str, shape: list[int | str]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(shape))


def _standard_rotary(node: ir.Node) -> None:
    """The standard operator, which takes values of rank 3."""
    new = ir.Node(
        "",
        "RotaryEmbedding",
        node.inputs,
        ir.convenience.convert_attributes(attributes_of(node)),
        name=node.name,
    )
    new.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    replace_node([node], [new], node.outputs, new.outputs)


def _gather_by_sequence(graph: ir.Graph, rows: ir.Value, wanted: ir.Value) -> None:
    """Case 3: [B, S, D] at ``wanted`` [B, R] is [B, R, D]."""
    gathers = list(rows.consumers())
    odd = [n for n in gathers if not is_op(n, "Gather") or n.inputs[1] is not rows]
    if odd or not gathers:
        name = odd[0].op_type if odd else "nothing"
        raise UnsupportedError(f"{name} uses logit_rows", where="pass kv-slots")
    unsqueeze = ir.Node("", "Unsqueeze", [wanted, int_initializer(graph, [-1], "last_axis")])
    index = unsqueeze.outputs[0]
    index.name, index.type = "logit_index.column", wanted.type
    index.shape = ir.Shape(["B", "R", 1])
    first = next(node for node in graph if node in set(gathers))
    graph.insert_before(first, [unsqueeze])
    for node in gathers:
        attributes = ir.convenience.convert_attributes({"batch_dims": 1})
        new = ir.Node("", "GatherND", [node.inputs[0], index], attributes, name=node.name)
        replace_node([node], [new], node.outputs, new.outputs)


def _replace_inputs(graph: ir.Graph, writes: ir.Value, wanted: ir.Value) -> None:
    """Drop the ragged inputs; the slots, which were appended, come last."""
    for value in [v for v in graph.inputs if _is_ragged(str(v.name))]:
        if value.uses():
            user = next(iter(value.consumers()))
            raise UnsupportedError(
                f"{user.op_type} uses {value.name}", where=f"pass kv-slots, node {user.name}"
            )
        graph.inputs.remove(value)
    slots = [value for value in graph.inputs if str(value.name).startswith("past_")]
    for value in slots:
        graph.inputs.remove(value)
    graph.inputs.extend([writes, wanted, *slots])


def _is_ragged(name: str) -> bool:
    return name in _RAGGED_INPUTS or "_pool." in name


def _restate_shapes(graph: ir.Graph) -> None:
    """[T, …] as [B, S, …] and [R, …] as [B, R, …]."""
    for value in (value for node in graph for value in node.outputs):
        if value.shape is None or is_constant(value) or not len(value.shape):
            continue
        first, *rest = value.shape
        if str(first) in ("T", "R"):
            value.shape = ir.Shape(["B", "S" if str(first) == "T" else "R", *rest])
