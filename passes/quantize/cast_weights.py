"""`cast-weights`: weights of linear layers in bfloat16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import onnx_ir as ir

from optc.errors import InputError
from optc.ir.functions import make_node
from optc.ir.graph import add_initializer, remove_unused, replace_node
from optc.ir.linear import Linear, find_linear, head_of
from optc.ir.weights import Array, LazyWeight
from optc.pipeline.base import Pass, PassReport


@dataclass(frozen=True)
class CastWeights(Pass):
    """Every linear layer becomes ``optc::Bf16MatMul``, its bias folded in.

    Attributes:
        dtype: ``bfloat16``.
        head: Cast the head too.
    """

    name: ClassVar[str] = "cast-weights"
    required: ClassVar[bool] = True

    dtype: str = "bfloat16"
    head: bool = True

    def __post_init__(self) -> None:
        """Refuse other types.

        Raises:
            InputError: ``dtype`` is not ``bfloat16``.
        """
        if self.dtype != "bfloat16":
            raise InputError(
                f"dtype={self.dtype} is not possible",
                where=f"pass {self.name}",
                hint="the only type is bfloat16",
            )

    def run(self, model: ir.Model) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        head = head_of(model)
        weights: dict[ir.Value, ir.Value] = {}
        for node in list(model.graph):
            linear = find_linear(node)
            if linear is None:
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
        remove_unused(model)
        return report


def _cast(graph: ir.Graph, linear: Linear) -> ir.Value:
    weight: LazyWeight = linear.weight.map_rows(_to_bfloat16, ir.DataType.BFLOAT16)
    metadata = dict(linear.initializer.metadata_props)
    return add_initializer(graph, weight, f"{linear.name}.bfloat16", metadata)


def _to_bfloat16(rows: Array) -> Array:
    return rows.astype(ml_dtypes.bfloat16, copy=False)
