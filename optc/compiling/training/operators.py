"""The operators of the dense form (docs/normal-form.md) as functions of PyTorch tensors.

Each takes the node's inputs (None where one is left out) and its attributes, and gives a tensor, or
a tuple of them. Norms, softmax and element-wise functions keep float32 under autocast; products do
what autocast says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor

from optc.ir.functions import DOMAIN
from optc.runtime.executable.block_hadamard import block_hadamard

Operands = Sequence[Tensor | None]
Attributes = Mapping[str, Any]
Function = Callable[[Operands, Attributes], Tensor | tuple[Tensor, ...]]

#: ONNX element types that a dense form casts to.
_TYPES = {
    1: torch.float32,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float32,  # float16 was the source's; float32 holds more
    11: torch.float32,
    16: torch.float32,
}


def _given(operands: Operands, index: int) -> Tensor:
    value = operands[index]
    if value is None:
        raise ValueError(f"operand {index} is left out")
    return value


def _present(operands: Operands) -> list[Tensor]:
    return [value for value in operands if value is not None]


def _integers(operands: Operands, index: int) -> list[int]:
    return [int(x) for x in _given(operands, index).flatten().tolist()]


def _element_wise(function: Callable[..., Tensor]) -> Function:
    return lambda operands, attributes: function(*_present(operands))


def _rms_norm(operands: Operands, attributes: Attributes) -> Tensor:
    x, scale = _given(operands, 0).float(), _given(operands, 1)
    return F.rms_norm(x, (x.shape[-1],), scale, attributes.get("epsilon", 1e-5))


def _layer_norm(operands: Operands, attributes: Attributes) -> Tensor:
    x, scale = _given(operands, 0).float(), _given(operands, 1)
    bias = operands[2] if len(operands) > 2 else None
    return F.layer_norm(x, (x.shape[-1],), scale, bias, attributes.get("epsilon", 1e-5))


def _head_rms_norm(operands: Operands, attributes: Attributes) -> Tensor:
    x, scale = _given(operands, 0).float(), _given(operands, 1)
    heads = x.unflatten(-1, (attributes["num_heads"], -1))
    return F.rms_norm(heads, (heads.shape[-1],), scale, attributes["epsilon"]).flatten(-2)


def _block_hadamard(operands: Operands, attributes: Attributes) -> Tensor:
    x, inverse = _given(operands, 0), bool(attributes.get("inverse", 0))
    matrix = _rotation(attributes["width"], attributes["block"], inverse)
    return x.float() @ matrix.to(x.device)


@cache
def _rotation(width: int, block: int, inverse: bool) -> Tensor:
    """T [K, K] of x T; its backward pass is a product, too."""
    return torch.from_numpy(block_hadamard(np.eye(width, dtype=np.float32), block, inverse=inverse))


def _rotary(operands: Operands, attributes: Attributes) -> Tensor:
    """x [B, S, n*d], cos and sin [B, S, r/2]; the first r values of a head turn."""
    x = _given(operands, 0).unflatten(-1, (attributes["num_heads"], -1))
    cos, sin = (_given(operands, i).unsqueeze(-2) for i in (1, 2))
    width = attributes.get("rotary_embedding_dim", 0) or x.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    if attributes.get("interleaved", 0):
        first, second = turned[..., ::2], turned[..., 1::2]
    else:
        first, second = turned.chunk(2, dim=-1)
    pair = first * cos - second * sin, first * sin + second * cos
    if attributes.get("interleaved", 0):
        turned = torch.stack(pair, dim=-1).flatten(-2)
    else:
        turned = torch.cat(pair, dim=-1)
    return torch.cat([turned, rest.to(turned.dtype)], dim=-1).flatten(-2)


def _attention(operands: Operands, attributes: Attributes) -> Tensor:
    """Causal attention of heads in the last axis; query heads share key heads in order."""
    heads, kv_heads = attributes["num_heads"], attributes["kv_num_heads"]
    q = _given(operands, 0).unflatten(-1, (heads, -1)).transpose(1, 2)
    k, v = (
        _given(operands, i)
        .unflatten(-1, (kv_heads, -1))
        .transpose(1, 2)
        .repeat_interleave(heads // kv_heads, dim=1)
        for i in (1, 2)
    )
    q, k = (t.to(v.dtype) for t in (q, k))
    chunk = attributes.get("chunk", 0)
    by_head = [operands[i] if len(operands) > i else None for i in (3, 4)]
    window, cap = attributes["window"], attributes["softcap"]
    mask = _visible(q.shape[-2], window, chunk, q.device)
    if cap or any(each is not None for each in by_head):
        out = _spelled_attention((q, k, v), mask, by_head, attributes)
    elif window or chunk:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=attributes["scale"])
    else:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=attributes["scale"])
    return out.transpose(1, 2).flatten(-2)


def _spelled_attention(
    qkv: tuple[Tensor, Tensor, Tensor],
    mask: Tensor,
    by_head: Sequence[Tensor | None],
    attributes: Attributes,
) -> Tensor:
    """With softcap, sinks and slopes [H]; qkv [B, H, S, D], mask [S, S]."""
    q, k, v = qkv
    cap, (sinks, slopes) = attributes["softcap"], by_head
    scores = (q @ k.transpose(-1, -2)).float() * attributes["scale"]
    if cap:
        scores = torch.tanh(scores / cap) * cap
    if slopes is not None:
        index = torch.arange(q.shape[-2], device=q.device)
        scores = scores + slopes[:, None, None] * (index - index[:, None])
    scores = scores.masked_fill(~mask, -torch.inf)
    if sinks is None:
        return scores.softmax(dim=-1).to(v.dtype) @ v
    column = sinks[None, :, None, None].expand(*scores.shape[:-1], 1)
    weights = torch.cat([column, scores], dim=-1).softmax(dim=-1)[..., 1:]
    return weights.to(v.dtype) @ v


def _visible(length: int, window: int, chunk: int, device: torch.device) -> Tensor:
    """[S, S] whether a row sees a column; a window of 0 is all, a chunk of 0 is none."""
    index = torch.arange(length, device=device)
    distance = index[:, None] - index[None, :]
    visible = distance >= 0
    if window:
        visible &= distance < window
    if chunk:
        visible &= index[:, None] // chunk == index[None, :] // chunk
    return visible


def _gated(operands: Operands, attributes: Attributes) -> Tensor:
    gate, up = _given(operands, 0).chunk(2, dim=-1)
    kind, limit = attributes["activation"], attributes.get("limit", 0.0)
    if limit:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    up = up + attributes.get("up_shift", 0.0)
    if kind == "silu":
        return gate * torch.sigmoid(gate * attributes.get("alpha", 1.0)) * up
    return F.gelu(gate, approximate="tanh" if kind == "gelu_tanh" else "none") * up


def _gelu(operands: Operands, attributes: Attributes) -> Tensor:
    return F.gelu(_given(operands, 0), approximate=attributes.get("approximate", "none"))


def _cast(operands: Operands, attributes: Attributes) -> Tensor:
    return _given(operands, 0).to(_TYPES[attributes["to"]])


def _split(operands: Operands, attributes: Attributes) -> tuple[Tensor, ...]:
    x, axis = _given(operands, 0), attributes.get("axis", 0)
    if len(operands) > 1 and operands[1] is not None:
        return tuple(x.split(_integers(operands, 1), dim=axis))
    size = -(-x.shape[axis] // attributes["num_outputs"])
    return tuple(x.split(size, dim=axis))


def _slice(operands: Operands, attributes: Attributes) -> Tensor:
    x = _given(operands, 0)
    starts, stops = _integers(operands, 1), _integers(operands, 2)
    has = [len(operands) > i and operands[i] is not None for i in (3, 4)]
    axes = _integers(operands, 3) if has[0] else list(range(len(starts)))
    steps = _integers(operands, 4) if has[1] else [1] * len(starts)
    index = [slice(None)] * x.ndim
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        index[axis] = slice(start, stop, step)
    return x[tuple(index)]


def _concat(operands: Operands, attributes: Attributes) -> Tensor:
    parts = _present(operands)
    widest = max((part.dtype for part in parts), key=lambda kind: kind.itemsize)
    return torch.cat([part.to(widest) for part in parts], dim=attributes["axis"])


def _unsqueeze(operands: Operands, attributes: Attributes) -> Tensor:
    x = _given(operands, 0)
    rank = x.ndim + len(axes := _integers(operands, 1))
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _squeeze(operands: Operands, attributes: Attributes) -> Tensor:
    return _given(operands, 0).squeeze(tuple(_integers(operands, 1)))


def _gather(operands: Operands, attributes: Attributes) -> Tensor:
    return F.embedding(_given(operands, 1), _given(operands, 0))


def _matmul(operands: Operands, attributes: Attributes) -> Tensor:
    return _given(operands, 0) @ _given(operands, 1)


def _clip(operands: Operands, attributes: Attributes) -> Tensor:
    low, high = (operands[i] if len(operands) > i else None for i in (1, 2))
    return torch.clamp(_given(operands, 0), low, high)


#: By domain and operator: all that `canonicalize` leaves.
OPERATORS: Mapping[tuple[str, str], Function] = {
    **{
        ("", name): _element_wise(function)
        for name, function in {
            "Add": torch.add,
            "Sub": torch.sub,
            "Mul": torch.mul,
            "Div": torch.div,
            "Pow": torch.pow,
            "Neg": torch.neg,
            "Abs": torch.abs,
            "Reciprocal": torch.reciprocal,
            "Sqrt": torch.sqrt,
            "Min": torch.minimum,
            "Max": torch.maximum,
            "Tanh": torch.tanh,
            "Sigmoid": torch.sigmoid,
            "Relu": torch.relu,
            "Erf": torch.erf,
            "Exp": torch.exp,
            "Cos": torch.cos,
            "Sin": torch.sin,
            "Softplus": F.softplus,
            "Floor": torch.floor,
            "Log": torch.log,
            "Not": torch.logical_not,
            "Greater": torch.gt,
            "GreaterOrEqual": torch.ge,
            "Less": torch.lt,
            "LessOrEqual": torch.le,
            "Where": torch.where,
            "Identity": lambda x: x,
        }.items()
    },
    ("", "RMSNormalization"): _rms_norm,
    ("", "LayerNormalization"): _layer_norm,
    ("", "RotaryEmbedding"): _rotary,
    ("", "Gelu"): _gelu,
    ("", "Clip"): _clip,
    ("", "Cast"): _cast,
    ("", "Split"): _split,
    ("", "Slice"): _slice,
    ("", "Concat"): _concat,
    ("", "Unsqueeze"): _unsqueeze,
    ("", "Squeeze"): _squeeze,
    ("", "Gather"): _gather,
    ("", "MatMul"): _matmul,
    (DOMAIN, "HeadRMSNorm"): _head_rms_norm,
    (DOMAIN, "BlockHadamard"): _block_hadamard,
    (DOMAIN, "Attention"): _attention,
    (DOMAIN, "GatedActivation"): _gated,
}
