"""What operators of mixtures of experts compute, in NumPy, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.support import oracle
from tests.support.ir_text import Array

#: Softmax, choice, weights that sum to one.
ROUTING: dict[str, Any] = {
    "scoring": "softmax",
    "normalize": 1,
    "norm_epsilon": 0.0,
    "scale": 1.0,
    "groups": 1,
    "top_groups": 1,
    "group_score": "max",
}


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
        "sigmoid_after": row,
        "sparse_mixer": row,
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
    if how["scoring"] == "sparse_mixer":
        weights = _among_rivals(row, experts, how["threshold"])
    if how["scoring"] == "sigmoid_after":
        weights = [float(1 / (1 + np.exp(-w))) for w in weights]
    if how["scoring"] == "softmax_after":
        raised = np.exp(np.array(weights) - max(weights))
        weights = list(raised / raised.sum())
    if how["normalize"]:
        total = sum(weights) + how["norm_epsilon"]
        weights = [w / total for w in weights]
    return [w * how["scale"] for w in weights], experts


def _among_rivals(row: Array, experts: list[int], threshold: float) -> list[float]:
    """The softmax of each expert among those that are not chosen before it, and near it."""
    weights = []
    for turn, chosen in enumerate(experts):
        best, total = row[chosen], 0.0
        for e, logit in enumerate(row):
            near = best - logit <= threshold * max(abs(logit), best)
            total += np.exp(logit - best) if near and e not in experts[:turn] else 0.0
        weights.append(float(1 / total))
    return weights


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
