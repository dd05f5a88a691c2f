"""Operators of PyTorch that its exporter to ONNX has no translation of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnxscript import opset23 as op

_ATEN = torch.ops.aten
_INT64 = int(ir.DataType.INT64)


def _prod(x: Any, *, dtype: int = -1) -> Any:
    return op.ReduceProd(_summed(x, dtype), keepdims=0)


def _prod_of_axis(x: Any, dim: int, keepdim: bool = False, *, dtype: int = -1) -> Any:
    axes = op.Constant(value_ints=[dim])
    return op.ReduceProd(_summed(x, dtype), axes, keepdims=int(keepdim))


def _summed(x: Any, dtype: int) -> Any:
    """``x`` in the type of its product: integers become int64."""
    if dtype in (-1, None):
        whole = x.dtype is not None and (x.dtype.is_integer() or x.dtype is ir.DataType.BOOL)
        dtype = _INT64 if whole else -1
    return x if dtype == -1 or x.dtype == dtype else op.Cast(x, to=int(dtype))


def _sorted(x: Any, stable: bool = True, dim: int = -1, descending: bool = False) -> Any:
    """TopK of all keeps the order of what is equal."""
    size = op.Gather(op.Shape(x), op.Constant(value_ints=[dim]))
    return op.TopK(x, size, axis=dim, largest=int(descending), sorted=1)


def _distances(x: Any, y: Any, p: float, compute_mode: int | None) -> Any:
    """Of all rows of ``x`` to all of ``y``."""
    rows, others = op.Constant(value_ints=[-2]), op.Constant(value_ints=[-3])
    apart = op.Sub(op.Unsqueeze(x, rows), op.Unsqueeze(y, others))
    last = op.Constant(value_ints=[-1])
    if p == 1.0:
        return op.ReduceL1(apart, last, keepdims=0)
    if p == 2.0:
        return op.ReduceL2(apart, last, keepdims=0)
    if p == float("inf"):
        return op.ReduceMax(op.Abs(apart), last, keepdims=0)
    raise NotImplementedError(f"cdist with p={p}; 1, 2 and infinity are translated")


#: Translations by operator, as `torch.onnx.export` takes them.
TRANSLATIONS: Mapping[Callable[..., Any], Callable[..., Any] | Sequence[Callable[..., Any]]] = {
    _ATEN.prod.default: _prod,
    _ATEN.prod.dim_int: _prod_of_axis,
    _ATEN.sort.stable: _sorted,
    _ATEN._cdist_forward.default: _distances,
}
