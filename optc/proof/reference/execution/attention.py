"""Attention of the dense form, in PyTorch: causal, and to the states of an encoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor

from optc.proof.reference.execution.node import Attributes, Operands, given

#: Scores that are in memory at once where they are spelled out: 64 MiB in float32.
_SCORES = 1 << 24


def attention(operands: Operands, attributes: Attributes) -> Tensor:
    """Attention of heads in the last axis; query heads share key heads in order.

    Args:
        operands: q [B, S, H*Dk], k [B, S, Hkv*Dk], v [B, S, Hkv*Dv], and sinks [H], slopes [H]
            and biases by distance [H, N], or None.
        attributes: Of ``optc::Attention``.

    Returns:
        [B, S, H*Dv].
    """
    heads, kv_heads = attributes["num_heads"], attributes["kv_num_heads"]
    q, k, v = _by_head(operands, heads, kv_heads)
    window, chunk = attributes.get("window", 0), attributes.get("chunk", 0)
    by_head = [operands[i] if len(operands) > i else None for i in (3, 4, 5)]
    if attributes.get("softcap", 0.0) or any(each is not None for each in by_head):
        out = _spelled((q, k, v), by_head, attributes)
    else:
        mask = visible(q.shape[-2], window, chunk, q.device) if window or chunk else None
        out = F.scaled_dot_product_attention(
            *(q, k, v),
            attn_mask=mask,
            is_causal=mask is None,
            scale=attributes["scale"],
            enable_gqa=heads != kv_heads,
        )
    return out.transpose(1, 2).flatten(-2)


def cross_attention(operands: Operands, attributes: Attributes) -> Tensor:
    """Attention [B, S, H*Dv] of q [B, S, H*Dk] to all of k [B, P, Hkv*Dk] and v [B, P, Hkv*Dv]."""
    heads, kv_heads = attributes["num_heads"], attributes["kv_num_heads"]
    q, k, v = _by_head(operands, heads, kv_heads)
    out = F.scaled_dot_product_attention(
        *(q, k, v), scale=attributes["scale"], enable_gqa=heads != kv_heads
    )
    return out.transpose(1, 2).flatten(-2)


def _by_head(operands: Operands, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v [B, heads, length, D] of one type."""
    q, k, v = (
        given(operands, place).unflatten(-1, (count, -1)).transpose(1, 2)
        for place, count in enumerate((heads, kv_heads, kv_heads))
    )
    return q.to(v.dtype), k.to(v.dtype), v


def _spelled(
    qkv: tuple[Tensor, Tensor, Tensor], by_head: Sequence[Tensor | None], attributes: Attributes
) -> Tensor:
    """With softcap, and what is by head: [B, H, S, Dv] of q [B, H, S, Dk] and k, v of fewer heads,
    as many windows at a time as scores have room for."""
    heads, length = qkv[0].shape[1:3]
    seen = visible(length, attributes.get("window", 0), attributes.get("chunk", 0), qkv[0].device)
    together = max(1, _SCORES // (heads * length * length))
    parts = zip(*(each.split(together) for each in qkv), strict=True)
    return torch.cat([_of_windows(part, seen, by_head, attributes) for part in parts])


def _of_windows(
    qkv: tuple[Tensor, ...],
    seen: Tensor,
    by_head: Sequence[Tensor | None],
    attributes: Attributes,
) -> Tensor:
    q = qkv[0]
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], dim=1) for each in qkv[1:])
    cap, (sinks, slopes, biases) = attributes.get("softcap", 0.0), by_head
    scores = (q @ k.transpose(-1, -2)).float() * attributes["scale"]
    if cap:
        scores = torch.tanh(scores / cap) * cap
    if slopes is not None:
        index = torch.arange(q.shape[-2], device=q.device)
        scores = scores + slopes[:, None, None] * (index - index[:, None])
    if biases is not None:
        index = torch.arange(q.shape[-2], device=q.device)
        scores = scores + biases[:, (index[:, None] - index).clamp(0, biases.shape[1] - 1)]
    scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is None:
        return scores.softmax(dim=-1).to(v.dtype) @ v
    column = sinks[None, :, None, None].expand(*scores.shape[:-1], 1)
    weights = torch.cat([column, scores], dim=-1).softmax(dim=-1)[..., 1:]
    return weights.to(v.dtype) @ v


def visible(length: int, window: int, chunk: int, device: torch.device) -> Tensor:
    """[S, S] whether a row sees a column; a window of 0 is all, a chunk of 0 is none."""
    index = torch.arange(length, device=device)
    distance = index[:, None] - index[None, :]
    seen = distance >= 0
    if window:
        seen &= distance < window
    if chunk:
        seen &= index[:, None] // chunk == index[None, :] // chunk
    return seen
