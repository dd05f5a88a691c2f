"""Linear attention with a decay, in PyTorch: chunk by chunk, products within a chunk at once.

With g the sums of a chunk's decays up to each row, row i sees row j <= i times exp(g_i - g_j). What
the delta rule adds depends on the rows before, by a lower triangular system (Yang et al.,
arXiv:2412.06464, section 3.3).
"""

from __future__ import annotations

import torch
from torch import Tensor

from optc.proof.reference.execution.node import Attributes, Operands, given

#: Rows of a chunk.
_CHUNK = 64


def linear_attention(operands: Operands, attributes: Attributes) -> Tensor:
    """``optc::LinearAttention`` without a past.

    Args:
        operands: q, k [B, S, Hk*Dk], v [B, S, H*Dv], decay and beta [B, S, H].
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
    v = given(operands, 2).float().unflatten(-1, (heads, -1)).transpose(1, 2)
    decay, beta = (given(operands, i).float().transpose(1, 2) for i in (3, 4))
    state = v.new_zeros(*v.shape[:2], attributes["key_dim"], attributes["value_dim"])
    parts = []
    for chunk in zip(*(x.split(_CHUNK, dim=2) for x in (q, k, v, decay, beta)), strict=True):
        part, state = _chunk(chunk, state, delta=bool(attributes["delta"]))
        parts.append(part)
    out = torch.cat(parts, dim=2) * attributes["scale"]
    return out.transpose(1, 2).flatten(-2)


def _chunk(operands: tuple[Tensor, ...], state: Tensor, *, delta: bool) -> tuple[Tensor, Tensor]:
    """The rows [B, H, C, Dv] of a chunk behind ``state`` [B, H, Dk, Dv], and the next state."""
    q, k, v, decay, beta = operands
    sums = decay.cumsum(-1)
    apart = sums[..., :, None] - sums[..., None, :]
    seen = torch.ones_like(apart, dtype=torch.bool).tril()
    weights = torch.where(seen, apart, 0.0).exp() * seen
    faded = sums.exp()[..., None]
    added = beta[..., None] * (v - faded * (k @ state) if delta else v)
    if delta:
        system = beta[..., None] * (weights * (k @ k.transpose(-1, -2))).tril(-1)
        system = system + torch.eye(system.shape[-1], device=system.device)
        added = torch.linalg.solve_triangular(system, added, upper=False, unitriangular=True)
    out = faded * (q @ state) + (weights * (q @ k.transpose(-1, -2))) @ added
    left = (sums[..., -1:] - sums).exp()[..., None]
    return out, faded[..., -1:, :] * state + (left * k).transpose(-1, -2) @ added
