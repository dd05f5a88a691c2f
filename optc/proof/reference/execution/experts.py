"""Mixtures of experts of the dense form, in PyTorch: the router, matmuls by experts, their sum."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor

from optc.proof.reference.execution.node import Attributes, Operands, given, optional


def top_k_router(operands: Operands, attributes: Attributes) -> tuple[Tensor, Tensor]:
    """Weights [..., k] and experts i32 [..., k] of logits [..., E]: the experts of the largest
    scores, the lower index first among equals."""
    logits, bias = given(operands, 0), optional(operands, 1)
    scoring = attributes["scoring"]
    scores = logits
    if scoring == "softmax":
        scores = logits.softmax(-1)
    elif scoring == "sigmoid":
        scores = logits.sigmoid()
    choice = scores if bias is None else scores + bias
    if attributes["groups"] > 1:
        choice = _within_groups(choice, attributes)
    chosen = _largest(choice, attributes["top_k"])[1]
    weights = scores.gather(-1, chosen)
    if scoring == "sigmoid_after":
        weights = weights.sigmoid()
    if scoring == "sparse_mixer":
        weights = _among_rivals(logits, weights, attributes["threshold"])
    if scoring == "softmax_after":
        weights = weights.softmax(-1)
    if attributes["normalize"]:
        weights = weights / (weights.sum(-1, keepdim=True) + attributes["norm_epsilon"])
    return weights * attributes["scale"], chosen.to(torch.int32)


def _among_rivals(logits: Tensor, own: Tensor, threshold: float) -> Tensor:
    """The softmax of each chosen expert, of logits ``own`` [..., k], among the rivals that are left
    when it is chosen."""
    left, weights = logits, []
    for turn, best in enumerate(own.split(1, -1)):
        far = (best - logits) / logits.abs().maximum(best) > threshold
        powers = (left.masked_fill(far, -torch.inf) - best).exp()
        weights.append(powers.sum(-1, keepdim=True).reciprocal())
        place = _largest(logits, turn + 1)[1][..., turn:]
        left = left.scatter(-1, place, -torch.inf)
    return torch.cat(weights, -1)


def _within_groups(choice: Tensor, attributes: Attributes) -> Tensor:
    """``choice`` [..., E] in the groups of the largest scores, else -inf."""
    grouped = choice.unflatten(-1, (attributes["groups"], -1))
    if attributes["group_score"] == "max":
        score = grouped.amax(-1)
    else:
        score = _largest(grouped, 2)[0].sum(-1)
    places = _largest(score, attributes["top_groups"])[1]
    kept = torch.zeros_like(score, dtype=torch.bool).scatter(-1, places, True)
    return grouped.masked_fill(~kept.unsqueeze(-1), -torch.inf).flatten(-2)


def _largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest values of the last axis and their places, the first of equals first: `torch.topk`
    promises no order of these."""
    found, places = values.sort(dim=-1, descending=True, stable=True)
    return found[..., :count], places[..., :count]


def expert_matmul(operands: Operands, attributes: Attributes) -> Tensor:
    """[..., k, N] of x [..., K], or [..., k, K] where ``spread`` is 0, experts i32 [..., k], the
    weights of all experts by rows [E*N, K], and a bias [E*N] or None."""
    x, experts, rows = (given(operands, place) for place in range(3))
    bias, count = optional(operands, 3), attributes["num_experts"]
    width, fan = rows.shape[0] // count, experts.shape[-1]
    flat, chosen = x.reshape(-1, x.shape[-1]), experts.reshape(-1)
    result = x.new_zeros(len(chosen), width)
    for expert in chosen.unique().tolist():
        own = slice(expert * width, (expert + 1) * width)
        places = (chosen == expert).nonzero().flatten()
        taken = flat[places // fan if attributes["spread"] else places]
        product = F.linear(taken, rows[own], None if bias is None else bias[own])
        result.index_copy_(0, places, product.to(result.dtype))
    return result.reshape(*experts.shape, width)


def combine_experts(operands: Operands, attributes: Attributes) -> Tensor:
    """[..., N] of results [..., k, N] and weights [..., k]: the weighted sum over k."""
    y, weights = given(operands, 0), given(operands, 1)
    return (y * weights.unsqueeze(-1)).sum(-2)
