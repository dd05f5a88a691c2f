"""Tiny decoders whose MLPs are mixtures of experts, and what they compute in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from optc.ir.functions import make_node
from tests.support import oracle
from tests.support.ir_text import Array
from tests.support.models import Dense, DenseBuilder, dense_model

ROUTING: dict[str, Any] = {
    "scoring": "softmax",
    "normalize": 1,
    "norm_epsilon": 0.0,
    "scale": 1.0,
    "groups": 1,
    "top_groups": 1,
    "group_score": "max",
}


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


def route(logits: Array, k: int, bias: Array | None = None, **how: Any) -> tuple[Array, Array]:
    """Weights and experts [..., k] as `optc::TopKRouter` has them, row by row in float64."""
    options = {**ROUTING, "normalize": 0, **how}
    rows = logits.reshape(-1, logits.shape[-1]).astype(np.float64)
    pairs = [_route_row(row, k, bias, options) for row in rows]
    shape = (*logits.shape[:-1], k)
    weights = np.array([pair[0] for pair in pairs]).reshape(shape)
    return weights, np.array([pair[1] for pair in pairs]).reshape(shape)


def _route_row(
    row: Array, k: int, bias: Array | None, how: Mapping[str, Any]
) -> tuple[list[float], list[int]]:
    soft = np.exp(row - row.max())
    scores = {
        "softmax": soft / soft.sum(),
        "sigmoid": 1 / (1 + np.exp(-row)),
        "softmax_after": row,
    }[how["scoring"]]
    ranked = scores + (0 if bias is None else bias)
    size = len(row) // how["groups"]
    groups = [list(range(g * size, (g + 1) * size)) for g in range(how["groups"])]
    if how["groups"] > 1:
        taken = 1 if how["group_score"] == "max" else 2
        best = [sum(sorted((ranked[i] for i in group), reverse=True)[:taken]) for group in groups]
        order = sorted(range(len(groups)), key=lambda g: (-best[g], g))[: how["top_groups"]]
        groups = [groups[g] for g in order]
    allowed = sorted(i for group in groups for i in group)
    experts = sorted(allowed, key=lambda i: (-ranked[i], i))[:k]
    weights = [float(scores[i]) for i in experts]
    if how["scoring"] == "softmax_after":
        raised = np.exp(np.array(weights) - max(weights))
        weights = list(raised / raised.sum())
    if how["normalize"]:
        total = sum(weights) + how["norm_epsilon"]
        weights = [w / total for w in weights]
    return [w * how["scale"] for w in weights], experts


def expert_matmul(
    x: Array, experts: Array, weight: Array, count: int, bias: Array | None, *, spread: bool
) -> Array:
    """x [..., K] or [..., k, K] by the experts [..., k] of weight [K, E * N], in float64."""
    n = weight.shape[1] // count
    result = np.zeros((*experts.shape, n))
    for place in np.ndindex(*experts.shape):
        e = experts[place]
        row = (x[place[:-1]] if spread else x[place]).astype(np.float64)
        result[place] = row @ weight[:, e * n : (e + 1) * n].astype(np.float64)
        if bias is not None:
            result[place] += bias[e * n : (e + 1) * n]
    return result


def mixture(
    x: Array, router: Array, gate_up: Array, down: Array, count: int, k: int, **how: Any
) -> Array:
    """A whole mixture over rows x [..., D] with silu gates; weights as graphs see them."""
    weights, experts = route(x @ router, k, **how)
    both = expert_matmul(x, experts, gate_up, count, None, spread=True)
    active = oracle.gated(both, "silu")
    y = expert_matmul(active, experts, down, count, None, spread=False)
    result: Array = (y * weights[..., None]).sum(-2)
    return result
