"""Linear attention with a decay, in PyTorch: chunk by chunk, products within a chunk at once.

With g the sums of a chunk's decays up to each row, row i sees row j <= i times exp(g_i - g_j). What
the delta rule adds depends on the rows before, by a lower triangular system (Yang et al.,
arXiv:2412.06464, section 3.3).
"""

from __future__ import annotations

import torch
from torch import Tensor

from optc.proof.reference.execution.node import Attributes, Operands, given

#: Rows of a chunk; where each key has a decay of its own, and products of rows are as many.
_CHUNK, _CHUNK_BY_KEY = 64, 16
#: Numbers of the states of all rows of a chunk, at most, where each number decays by itself.
_STATES = 1 << 23


def linear_attention(operands: Operands, attributes: Attributes) -> Tensor:
    """``optc::LinearAttention`` without a past.

    Args:
        operands: q, k [B, S, Hk*Dk], v [B, S, H*Dv], decay [B, S, H*decays], beta [B, S, H] or
            None; or decay [B, S, H*Dv] and behind beta rates [Dk, H*Dv].
        attributes: Of the operator.

    Returns:
        [B, S, H*Dv].
    """
    heads, key_heads = attributes["num_heads"], attributes["key_heads"]
    q, k = (
        given(operands, i)
        .float()
        .unflatten(-1, (key_heads, -1))
        .transpose(1, 2)
        .repeat_interleave(heads // key_heads, dim=1)
        for i in (0, 1)
    )
    v, decay = (
        given(operands, i).float().unflatten(-1, (heads, -1)).transpose(1, 2) for i in (2, 3)
    )
    factors = operands[4] if len(operands) > 4 else None
    beta = v.new_ones(1) if factors is None else factors.float().transpose(1, 2)[..., None]
    state = v.new_zeros(*v.shape[:2], attributes["key_dim"], attributes["value_dim"])
    rates = operands[5].float() if len(operands) > 5 and operands[5] is not None else None
    parts = []
    if rates is not None:
        by_head = rates.unflatten(1, (heads, -1)).transpose(0, 1)
        rows = max(1, min(_CHUNK, _STATES // state.numel()))
        for chunk in zip(*(x.split(rows, dim=2) for x in (q, k, beta * v, decay)), strict=True):
            part, state = _scanned(chunk, by_head, state)
            parts.append(part)
    else:
        rows = _CHUNK if decay.shape[-1] == 1 else _CHUNK_BY_KEY
        scaled = beta.expand(*v.shape[:3], 1)
        for chunk in zip(*(x.split(rows, dim=2) for x in (q, k, v, decay, scaled)), strict=True):
            part, state = _chunk(chunk, state, delta=bool(attributes["delta"]))
            parts.append(part)
    out = torch.cat(parts, dim=2) * attributes["scale"]
    return out.transpose(1, 2).flatten(-2)


def _chunk(operands: tuple[Tensor, ...], state: Tensor, *, delta: bool) -> tuple[Tensor, Tensor]:
    """The rows [B, H, C, Dv] of a chunk behind ``state`` [B, H, Dk, Dv], and the next state; decay
    [B, H, C, 1 or Dk], beta [B, H, C, 1]."""
    q, k, v, decay, beta = operands
    sums = decay.cumsum(-2)
    apart = sums[..., :, None, :] - sums[..., None, :, :]
    seen = torch.ones(apart.shape[-3:-1], dtype=torch.bool, device=v.device).tril()[..., None]
    weights = torch.where(seen, apart, 0.0).exp() * seen
    faded = sums.exp()
    added = beta * (v - (faded * k) @ state if delta else v)
    if delta:
        system = beta * _products(k, k, weights).tril(-1)
        system = system + torch.eye(system.shape[-1], device=system.device)
        added = torch.linalg.solve_triangular(system, added, upper=False, unitriangular=True)
    out = (faded * q) @ state + _products(q, k, weights) @ added
    left = (sums[..., -1:, :] - sums).exp()
    last = faded[..., -1, :, None]
    return out, last * state + (left * k).transpose(-1, -2) @ added


def _products(q: Tensor, k: Tensor, weights: Tensor) -> Tensor:
    """[B, H, C, C] products of rows, weighted by row, row and key [B, H, C, C, 1 or Dk]."""
    if weights.shape[-1] == 1:
        return weights[..., 0] * (q @ k.transpose(-1, -2))
    return torch.einsum("bhid,bhjd,bhijd->bhij", q, k, weights)


def _scanned(operands: tuple[Tensor, ...], rates: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """As `_chunk`, where every number of a state decays by itself: decay [B, H, C, Dv] times rates
    [H, Dk, Dv]. States of all rows at once, by doubling (Hillis and Steele, 1986)."""
    q, k, v, decay = operands
    factors = (decay[..., None, :] * rates[:, None]).exp()
    states = k[..., None] * v[..., None, :]
    states[:, :, 0] += factors[:, :, 0] * state
    step = 1
    while step < q.shape[2]:
        states = torch.cat(
            [
                states[:, :, :step],
                states[:, :, step:] + factors[:, :, step:] * states[:, :, :-step],
            ],
            dim=2,
        )
        factors = torch.cat(
            [factors[:, :, :step], factors[:, :, step:] * factors[:, :, :-step]], dim=2
        )
        step *= 2
    return torch.einsum("bhck,bhckv->bhcv", q, states), states[:, :, -1]
