"""Attention over tensors of any number of axes; PyTorch's translation takes four alone."""

from __future__ import annotations

from typing import Any

from onnxscript import opset23 as op
from torch.onnx._internal.exporter._torchlib.ops.nn import aten_scaled_dot_product_attention_23

#: Axes of ONNX's operator: batch, heads, tokens, channels.
_AXES = 4


def attending(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`scaled_dot_product_attention` with fewer axes, or several of batches, too."""
    rank = len(query.shape)
    if rank == _AXES or dropout_p:
        return aten_scaled_dot_product_attention_23(
            *(query, key, value, attn_mask, dropout_p, is_causal),
            scale=scale,
            enable_gqa=enable_gqa,
        )
    if enable_gqa:
        raise NotImplementedError(f"attention of {rank} axes with shared heads of keys")
    given = [_with_four(one) for one in (query, key, value)]
    mask = None if attn_mask is None else _mask(attn_mask, rank)
    found, *_ = op.Attention(*given, mask, scale=scale, is_causal=int(is_causal))
    if rank < _AXES:
        return op.Squeeze(found, op.Constant(value_ints=[*range(_AXES - rank)]))
    return op.Reshape(found, op.Concat(op.Shape(query, end=-1), op.Shape(value, start=-1), axis=0))


def _with_four(x: Any) -> Any:
    """``x`` with axes of one element, or all of its batches in one axis."""
    missing = _AXES - len(x.shape)
    if missing > 0:
        return op.Unsqueeze(x, op.Constant(value_ints=[*range(missing)]))
    rest = op.Shape(x, start=-missing + 1)
    return op.Reshape(x, op.Concat(op.Constant(value_ints=[-1]), rest, axis=0))


def _mask(mask: Any, rank: int) -> Any:
    """For rows of batches and heads: what it lacks of ``rank`` is the same for all."""
    axes = len(mask.shape)
    if rank < _AXES:
        missing = _AXES - axes
        return op.Unsqueeze(mask, op.Constant(value_ints=[*range(missing)]))
    if axes >= _AXES:
        raise NotImplementedError(f"attention of {rank} axes with a mask of {axes}")
    return mask
