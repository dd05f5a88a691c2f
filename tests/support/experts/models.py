"""Tiny decoders whose MLPs are mixtures of experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from optc.ir.functions import make_node
from tests.support.experts.oracle import ROUTING
from tests.support.models import Dense, DenseBuilder, dense_model


@dataclass(frozen=True)
class Experts:
    """How the MLPs of a model are mixtures of experts.

    Attributes:
        count: E.
        chosen: k.
        bias: Experts have biases.
        corrected: The router has a correction bias.
    """

    count: int = 6
    chosen: int = 2
    bias: bool = False
    corrected: bool = False


def expert_model(shape: Dense | None = None, experts: Experts | None = None) -> ir.Model:
    """A decoder in dense form, every MLP a mixture of experts with silu gates."""
    mixed = experts or Experts()
    return dense_model(shape or Dense(), lambda b, x, index: _mixture(b, x, index, mixed))


def _mixture(b: DenseBuilder, x: ir.Value, index: int, experts: Experts) -> ir.Value:
    s, e, k = b.shape, experts.count, experts.chosen
    logits = b.linear(x, f"{index}.router", s.hidden, e)
    bias = b.vector(f"{index}.correction", e, 0.0) if experts.corrected else None
    weights, chosen = _append(
        b, "TopKRouter", [logits, bias], [["B", "S", k], ["B", "S", k]], {"top_k": k, **ROUTING}
    )
    both = _matmul(b, x, chosen, f"{index}.gate_up", (s.hidden, 2 * s.inner), experts, spread=1)
    gated = b.op("Split", [both], outputs=2, axis=-1, num_outputs=2)
    for value in gated:
        value.shape = ir.Shape(["B", "S", k, s.inner])
    active = b.op("Mul", [gated[0], b.op("Sigmoid", [gated[0]])])
    product = b.op("Mul", [active, gated[1]])
    for value in (active, product):
        value.shape = ir.Shape(["B", "S", k, s.inner])
    down = _matmul(b, product, chosen, f"{index}.down", (s.inner, s.hidden), experts, spread=0)
    (result,) = _append(b, "CombineExperts", [down, weights], [["B", "S", s.hidden]], {})
    return result


def _matmul(
    b: DenseBuilder,
    x: ir.Value,
    chosen: ir.Value,
    name: str,
    size: tuple[int, int],
    experts: Experts,
    *,
    spread: int,
) -> ir.Value:
    (inner, outer), e = size, experts.count
    weight = b.constant(b.weight(name, e * outer, inner).transpose(), name)
    bias = b.vector(f"{name}.bias", e * outer, 0.0) if experts.bias else None
    (result,) = _append(
        b,
        "ExpertMatMul",
        [x, chosen, weight, bias],
        [["B", "S", experts.chosen, outer]],
        {"num_experts": e, "spread": spread},
    )
    return result


def _append(
    b: DenseBuilder,
    op_type: str,
    inputs: list[ir.Value | None],
    shapes: list[list[int | str]],
    attributes: Mapping[str, Any],
) -> list[ir.Value]:
    name = b.name(op_type.lower())
    outputs = [f"{name}_out{index}" for index in range(len(shapes))]
    node = make_node(
        b.model, op_type, inputs, attributes, outputs=outputs, shapes=shapes, name=name
    )
    b.graph.append(node)
    return list(node.outputs)
