"""`scatter_reduce`: PyTorch's translation gives the last value in place of a mean."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnxscript import opset23 as op
from onnxscript.function_libs.torch_lib.ops import core


def scattered(
    x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """Values of one place in ``x``, reduced; with its own, or without it."""
    if reduce != "mean":
        return core.aten_scatter_reduce(x, dim, index, src, reduce, include_self)
    if not x.shape or x.dtype is None or not x.dtype.is_floating_point():
        raise NotImplementedError("scatter_reduce with the mean of integers, or of one number")
    sums, counts = x, _filled(x, x, 1)
    if not include_self:
        nothing = _filled(src, x, 0)
        sums = op.ScatterElements(sums, index, nothing, axis=dim)
        counts = op.ScatterElements(counts, index, nothing, axis=dim)
    sums = op.ScatterElements(sums, index, src, axis=dim, reduction="add")
    counts = op.ScatterElements(counts, index, _filled(src, x, 1), axis=dim, reduction="add")
    return op.Div(sums, counts)  # an untouched place has its own value, and the count 1


def _filled(shaped: Any, typed: Any, number: int) -> Any:
    return op.ConstantOfShape(op.Shape(shaped), value=ir.tensor([number], dtype=typed.dtype))
