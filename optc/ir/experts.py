"""Matmuls by experts in a graph: their weights by rows, and who reads which."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.functions import DOMAIN, is_op, operand
from optc.ir.graph import constant
from optc.ir.linear import Linear
from optc.ir.weights import LazyWeight

#: Every precision of a matmul by experts.
EXPERT_MATMULS = ("ExpertMatMul", "Bf16ExpertMatMul", "QuantizedExpertMatMul")


@dataclass(frozen=True)
class ExpertLinear:
    """A float ``optc::ExpertMatMul``, its weight a constant.

    Attributes:
        linear: Its weight, [E * N, K] by rows, bias and operand as those of a linear layer; the
            ``matmul`` is the node.
        experts: The experts of each row, i32 [..., k].
        num_experts: E.
        spread: All chosen experts get the same row [..., K]; else each its own, [..., k, K].
    """

    linear: Linear
    experts: ir.Value
    num_experts: int
    spread: bool

    @property
    def attributes(self) -> dict[str, int]:
        """Attributes that every precision of the operator has."""
        return {"num_experts": self.num_experts, "spread": int(self.spread)}

    @property
    def weights(self) -> int:
        """The number of weights: E * N * K."""
        return math.prod(self.linear.weight.rows_shape)

    @property
    def weights_of_a_row(self) -> float:
        """The number of them that a row is multiplied by: k * N * K; all, if k is not known."""
        shape = self.experts.shape
        chosen = shape[-1] if shape is not None and isinstance(shape[-1], int) else None
        return self.weights * (chosen or self.num_experts) / self.num_experts


def find_expert_linear(node: ir.Node | None) -> ExpertLinear | None:
    """The matmul by experts that ``node`` is; None if it is none, or its weight is computed."""
    if node is None or not is_op(node, "ExpertMatMul", domain=DOMAIN):
        return None
    x, experts, initializer = node.inputs[:3]
    tensor = constant(initializer)
    if x is None or experts is None or initializer is None or not isinstance(tensor, LazyWeight):
        return None
    if len(tensor.rows_shape) != 2:  # as captured
        return None
    linear = Linear(node, None, x, initializer, tensor, operand(node, "bias"))
    attributes = node.attributes
    return ExpertLinear(
        linear, experts, attributes["num_experts"].as_int(), bool(attributes["spread"].as_int())
    )


def find_expert_linears(nodes: Iterable[ir.Node]) -> list[ExpertLinear]:
    """All float matmuls by experts among ``nodes``, in their order."""
    return [one for node in nodes if (one := find_expert_linear(node)) is not None]


def first_expert_matmul(nodes: Iterable[ir.Node]) -> ir.Node | None:
    """The first matmul by experts of any precision; None if there is none."""
    return next((node for node in nodes if is_op(node, *EXPERT_MATMULS, domain=DOMAIN)), None)


def feeds_router(value: ir.Value) -> bool:
    """True if ``value`` are the logits of a router."""
    return any(is_op(node, "TopKRouter", domain=DOMAIN) for node in value.consumers())


def values_of_experts(graph: ir.Graph) -> set[ir.Value]:
    """Values [..., k, N], a row for each chosen expert or head: results of matmuls by experts,
    heads that were split off, and what is computed of them, until they are combined or merged."""
    found: set[ir.Value] = set()
    for node in graph:
        if is_op(node, "CombineExperts", "MergeHeads", domain=DOMAIN):
            continue
        starts = is_op(node, *EXPERT_MATMULS, "SplitHeads", domain=DOMAIN)
        if starts or any(v in found for v in node.inputs):
            found.update(node.outputs)
    return found


def refuse_experts(model: ir.Model, where: str) -> None:
    """Raise where a pass has no place for matmuls by experts.

    Raises:
        UnsupportedError: ``model`` has one; ``where`` names the pass.
    """
    node = first_expert_matmul(model.graph)
    if node is not None:
        raise UnsupportedError(
            f"it does not know matmuls by experts, and the model has them: {node.name}",
            where=where,
            hint="leave this pass out of the recipe",
        )
