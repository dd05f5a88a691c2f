"""The operators of the dense form (docs/normal-form.md) as functions of PyTorch tensors.

Each takes the node's inputs (None where one is left out) and its attributes, and gives a tensor, or
a tuple of them. Norms, softmax and element-wise functions keep float32 under autocast; products do
what autocast says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, reduce

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor

from optc.ir.functions import DOMAIN
from optc.proof.reference.execution.attention import attention, cross_attention
from optc.proof.reference.execution.experts import combine_experts, expert_matmul, top_k_router
from optc.proof.reference.execution.node import (
    Attributes,
    Function,
    Operands,
    given,
    integers,
    optional,
    present,
)
from optc.proof.reference.execution.recurrence import linear_attention
from optc.runtime.executable.block_hadamard import bent_signs, block_hadamard

#: PyTorch's types for ONNX's. What is cast to one of 16 bits is rounded to it, and float32 again:
#: every operator of a dense form takes float32.
_TYPES = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}


def _element_wise(function: Callable[..., Tensor]) -> Function:
    return lambda operands, attributes: function(*present(operands))


def _rms_norm(operands: Operands, attributes: Attributes) -> Tensor:
    x, scale = given(operands, 0).float(), given(operands, 1)
    return F.rms_norm(x, (x.shape[-1],), scale, attributes.get("epsilon", 1e-5))


def _layer_norm(operands: Operands, attributes: Attributes) -> Tensor:
    x, scale = given(operands, 0).float(), given(operands, 1)
    bias = optional(operands, 2)
    return F.layer_norm(x, (x.shape[-1],), scale, bias, attributes.get("epsilon", 1e-5))


def _head_rms_norm(operands: Operands, attributes: Attributes) -> Tensor:
    x, scale = given(operands, 0).float(), given(operands, 1)
    heads = x.unflatten(-1, (attributes["num_heads"], -1))
    return F.rms_norm(heads, (heads.shape[-1],), scale, attributes["epsilon"]).flatten(-2)


def _head_concat(operands: Operands, attributes: Attributes) -> Tensor:
    """Columns of each head of b [..., H*d] behind those of a, or of the one that all share."""
    heads = attributes["num_heads"]
    b = given(operands, 1).unflatten(-1, (heads, -1))
    a = given(operands, 0).unflatten(-1, (1 if attributes["shared"] else heads, -1))
    return torch.cat([a.expand(*b.shape[:-1], -1), b], dim=-1).flatten(-2)


def _split_heads(operands: Operands, attributes: Attributes) -> tuple[Tensor, Tensor]:
    """Heads [..., H, D] of x [..., H*D], and the number of each, i32 [..., H]."""
    y = given(operands, 0).unflatten(-1, (attributes["num_heads"], -1))
    numbers = torch.arange(y.shape[-2], dtype=torch.int32, device=y.device)
    return y, numbers.expand(y.shape[:-1])


def _causal_conv(operands: Operands, attributes: Attributes) -> Tensor:
    """Each channel of x [B, S, C] by its filter [K] along the tokens, behind rows of zeros."""
    x, filters = given(operands, 0).float(), given(operands, 1)
    rows = F.pad(x.transpose(1, 2), (attributes["kernel"] - 1, 0))
    sums = F.conv1d(rows, filters[:, None], optional(operands, 2), groups=attributes["channels"])
    return sums.transpose(1, 2)


def _block_hadamard(operands: Operands, attributes: Attributes) -> Tensor:
    """x [..., K] rotated by blocks (`optc.runtime.executable.block_hadamard`)."""
    x, block = given(operands, 0).float(), attributes["block"]
    whole = x.shape[-1] // block * block
    sizes = [whole, x.shape[-1] - whole]
    matrix, signs = (each.to(x.device) for each in _rotation(block))
    inverse = bool(attributes.get("inverse", 0))
    if sizes[1] and inverse:
        x = torch.cat([x[..., :-block], (x[..., -block:] @ matrix) * signs], dim=-1)
    first, rest = x.split(sizes, dim=-1)
    x = torch.cat([(first.unflatten(-1, (-1, block)) @ matrix).flatten(-2), rest], dim=-1)
    if sizes[1] and not inverse:
        x = torch.cat([x[..., :-block], (x[..., -block:] * signs) @ matrix], dim=-1)
    return x


@cache
def _rotation(block: int) -> tuple[Tensor, Tensor]:
    """The symmetric matrix [B, B] of a block, and the signs [B] of the block over the last
    channels."""
    matrix = block_hadamard(np.eye(block, dtype=np.float32), block)
    with torch.inference_mode(False):  # or there would be no gradients of it later
        return torch.from_numpy(matrix), torch.tensor(bent_signs(block), dtype=torch.float32)


def _rotary(operands: Operands, attributes: Attributes) -> Tensor:
    """x [B, S, n*d], cos and sin [B, S, r/2]; the first r values of a head turn."""
    x = given(operands, 0).unflatten(-1, (attributes["num_heads"], -1))
    cos, sin = (given(operands, i).unsqueeze(-2) for i in (1, 2))
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
    if rest.shape[-1]:
        turned = torch.cat([turned, rest.to(turned.dtype)], dim=-1)
    return turned.flatten(-2)


def _gated(operands: Operands, attributes: Attributes) -> Tensor:
    gate, up = given(operands, 0).chunk(2, dim=-1)
    kind, limit = attributes["activation"], attributes.get("limit", 0.0)
    if limit:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    up = up + attributes.get("up_shift", 0.0)
    if kind == "silu":
        return gate * torch.sigmoid(gate * attributes.get("alpha", 1.0)) * up
    return F.gelu(gate, approximate="tanh" if kind == "gelu_tanh" else "none") * up


def _gelu(operands: Operands, attributes: Attributes) -> Tensor:
    return F.gelu(given(operands, 0), approximate=attributes.get("approximate", "none"))


def _cast(operands: Operands, attributes: Attributes) -> Tensor:
    found = given(operands, 0).to(_TYPES[attributes["to"]])
    return found.float() if found.dtype in (torch.float16, torch.bfloat16) else found


def _split(operands: Operands, attributes: Attributes) -> tuple[Tensor, ...]:
    x, axis = given(operands, 0), attributes.get("axis", 0)
    if optional(operands, 1) is not None:
        return tuple(x.split(integers(operands, 1), dim=axis))
    size = -(-x.shape[axis] // attributes["num_outputs"])
    return tuple(x.split(size, dim=axis))


def _slice(operands: Operands, attributes: Attributes) -> Tensor:
    x = given(operands, 0)
    starts, stops = integers(operands, 1), integers(operands, 2)
    every = range(len(starts))
    axes = every if optional(operands, 3) is None else integers(operands, 3)
    steps = [1 for _ in every] if optional(operands, 4) is None else integers(operands, 4)
    index = [slice(None)] * x.ndim
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        index[axis] = slice(start, stop, step)
    return x[tuple(index)]


def _concat(operands: Operands, attributes: Attributes) -> Tensor:
    parts = present(operands)
    widest = max((part.dtype for part in parts), key=lambda kind: kind.itemsize)
    return torch.cat([part.to(widest) for part in parts], dim=attributes["axis"])


def _unsqueeze(operands: Operands, attributes: Attributes) -> Tensor:
    x = given(operands, 0)
    rank = x.ndim + len(axes := integers(operands, 1))
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _squeeze(operands: Operands, attributes: Attributes) -> Tensor:
    return given(operands, 0).squeeze(tuple(integers(operands, 1)))


def _gather(operands: Operands, attributes: Attributes) -> Tensor:
    """Rows of a table, by axis 0 alone, which is all that the dense form has."""
    table, ids = given(operands, 0), given(operands, 1)
    return F.embedding(ids, table) if table.ndim == 2 else table[ids]


def _matmul(operands: Operands, attributes: Attributes) -> Tensor:
    return given(operands, 0) @ given(operands, 1)


def _clip(operands: Operands, attributes: Attributes) -> Tensor:
    return torch.clamp(given(operands, 0), optional(operands, 1), optional(operands, 2))


def _divide(x: Tensor, y: Tensor) -> Tensor:
    """Of integers what ONNX says: towards zero."""
    whole = not (x.is_floating_point() or y.is_floating_point())
    return torch.div(x, y, rounding_mode="trunc" if whole else None)


def _linear(operands: Operands, attributes: Attributes) -> Tensor:
    """oneDNN's kernel where no gradients are taken: it uses what CPUs of every maker have."""
    x, rows = given(operands, 0), given(operands, 1)
    if (
        torch.is_inference_mode_enabled()
        and x.device.type == "cpu"
        and torch.backends.mkldnn.is_available()
    ):
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, rows, None, "none", [], "")
        return found
    return F.linear(x, rows)


#: x [..., K] by the rows [N, K] of a layer's weight: what a MatMul by a weight is.
LINEAR: Function = _linear


#: By domain and operator: all that `canonicalize` leaves.
OPERATORS: Mapping[tuple[str, str], Function] = {
    **{
        ("", name): _element_wise(function)
        for name, function in {
            "Add": torch.add,
            "Sub": torch.sub,
            "Mul": torch.mul,
            "Div": _divide,
            "Pow": torch.pow,
            "Neg": torch.neg,
            "Abs": torch.abs,
            "Reciprocal": torch.reciprocal,
            "Sqrt": torch.sqrt,
            "Min": lambda *values: reduce(torch.minimum, values),
            "Max": lambda *values: reduce(torch.maximum, values),
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
    (DOMAIN, "HeadConcat"): _head_concat,
    (DOMAIN, "SplitHeads"): _split_heads,
    (DOMAIN, "MergeHeads"): lambda operands, attributes: given(operands, 0).flatten(-2),
    (DOMAIN, "BlockHadamard"): _block_hadamard,
    (DOMAIN, "CausalConv"): _causal_conv,
    (DOMAIN, "Attention"): attention,
    (DOMAIN, "CrossAttention"): cross_attention,
    (DOMAIN, "LinearAttention"): linear_attention,
    (DOMAIN, "GatedActivation"): _gated,
    (DOMAIN, "TopKRouter"): top_k_router,
    (DOMAIN, "ExpertMatMul"): expert_matmul,
    (DOMAIN, "CombineExperts"): combine_experts,
}
