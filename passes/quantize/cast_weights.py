"""`cast-weights`: weights of linear layers, and the embedding, in bfloat16."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import onnx_ir as ir

from optc.ir.experts import ExpertLinear, feeds_router, find_expert_linear
from optc.ir.functions import is_op, make_node
from optc.ir.graph import add_initializer, remove_unused, replace_node
from optc.ir.linear import Linear, find_linear, head_of, sources
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.sources import sources_metadata
from optc.ir.weights import Array, LazyWeight
from optc.passes.quantize.sample import sample_nodes


@dataclass(frozen=True)
class CastWeights(Pass):
    """Every linear layer becomes ``optc::Bf16MatMul``, its bias folded in, and every
    ``optc::ExpertMatMul`` an ``optc::Bf16ExpertMatMul``. The layer before a router stays float32.

    An embedding tied to a head that is cast becomes ``optc::Bf16Gather`` from the head's weight;
    any other is looked up in a bfloat16 table of its own and widened.

    Attributes:
        dtype: ``bfloat16``.
        head: Cast the head too.
        embedding: Cast the embedding.
    """

    name: ClassVar[str] = "cast-weights"
    phase: ClassVar[Phase] = Phase.ROUNDING
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS
    required: ClassVar[bool] = True

    dtype: str = "bfloat16"
    head: bool = True
    embedding: bool = True

    def __post_init__(self) -> None:
        """Refuse other types.

        Raises:
            InputError: ``dtype`` is not ``bfloat16``.
        """
        self.check_option("dtype", ("bfloat16",), "the only type is bfloat16")

    def samples(self) -> Sequence[ir.Node]:
        """An embedding, a linear layer and a head."""
        return sample_nodes(self)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        head = head_of(model)
        weights: dict[ir.Value, ir.Value] = {}
        for node in list(model.graph):
            linear, experts = find_linear(node), find_expert_linear(node)
            if experts is not None:
                _cast_experts(model, experts)
                report.add(f"{self.dtype}, experts")
            if linear is None:
                continue
            if feeds_router(linear.output):
                report.skip(linear.matmul, "a router reads its result: it stays float32")
                continue
            if head is not None and linear.matmul is head.matmul and not self.head:
                report.skip(linear.matmul, "the head stays float32 (head=false)")
                continue
            weight = weights.get(linear.initializer) or _cast(model.graph, linear)
            weights[linear.initializer] = weight
            new = make_node(
                model,
                "Bf16MatMul",
                [linear.x, weight, linear.bias],
                name=linear.matmul.name,
            )
            replace_node(linear.nodes, [new], [linear.output], new.outputs)
            report.add(self.dtype)
        if self.embedding:
            tied = weights.get(head.initializer) if head is not None else None
            _cast_embeddings(model, head.weight if head is not None else None, tied, report)
        remove_unused(model)
        return report


def _cast_experts(model: ir.Model, experts: ExpertLinear) -> None:
    linear = experts.linear
    new = make_node(
        model,
        "Bf16ExpertMatMul",
        [linear.x, experts.experts, _cast(model.graph, linear), linear.bias],
        experts.attributes,
        name=linear.matmul.name,
    )
    replace_node([linear.matmul], [new], [linear.output], new.outputs)


def _cast_embeddings(
    model: ir.Model, head: LazyWeight | None, tied: ir.Value | None, report: PassReport
) -> None:
    """Lookups in constant tables [V, D]; ``tied`` is the head's bfloat16 weight, if it has one."""
    for node in list(model.graph):
        table = node.inputs[0].const_value if is_op(node, "Gather") and node.inputs[0] else None
        if not isinstance(table, LazyWeight) or len(table.rows_shape) != 2 or table.transposed:
            continue
        shared = head is not None and table.read_rows == head.read_rows
        if shared and tied is None:
            report.skip(node, "the tied head stays float32, so the embedding does too")
            continue
        if shared:
            new = [make_node(model, "Bf16Gather", [node.inputs[1], tied], name=node.name)]
        else:
            new = _lookup(model.graph, node, table)
        replace_node([node], new, node.outputs, new[-1].outputs)
        report.add("embedding shares the head" if shared else "embedding bfloat16")


def _lookup(graph: ir.Graph, node: ir.Node, table: LazyWeight) -> list[ir.Node]:
    """Gather from a bfloat16 table, then Cast to float32."""
    cast = table.map_rows(_to_bfloat16, ir.DataType.BFLOAT16)
    initializer = add_initializer(graph, cast, f"{table.name}.bfloat16")
    gather = ir.node("Gather", [initializer, node.inputs[1]], {"axis": 0}, name=node.name)
    gather.outputs[0].type = ir.TensorType(ir.DataType.BFLOAT16)
    gather.outputs[0].shape = node.outputs[0].shape
    widen = ir.node("Cast", [gather.outputs[0]], {"to": int(ir.DataType.FLOAT)})
    widen.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    return [gather, widen]


def _cast(graph: ir.Graph, linear: Linear) -> ir.Value:
    weight: LazyWeight = linear.weight.map_rows(_to_bfloat16, ir.DataType.BFLOAT16)
    metadata = sources_metadata(sources([linear]))
    return add_initializer(graph, weight, f"{linear.name}.bfloat16", metadata)


def _to_bfloat16(rows: Array) -> Array:
    return rows.astype(ml_dtypes.bfloat16, copy=False)
