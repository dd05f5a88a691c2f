"""Average pools of PyTorch: over windows by another divisor, and over a number of windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from onnxscript import opset23 as op
from onnxscript.function_libs.torch_lib.ops import nn

from optc.importer.tensors.modules.greatest import windows


def averages(dims: int) -> Callable[..., Any]:
    """Of windows, or their sums by another divisor, which PyTorch's translation forgets."""

    def pooled(
        x: Any,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        average = getattr(nn, f"aten_avg_pool{dims}d")
        if divisor_override is None:
            return average(x, kernel_size, stride, padding, ceil_mode, count_include_pad)
        if ceil_mode:
            raise NotImplementedError("an average pool with ceil_mode and divisor_override")
        values = kernel_size[0] ** dims if len(kernel_size) == 1 else math.prod(kernel_size)
        factor = op.CastLike(op.Constant(value_float=values / divisor_override), x)
        return op.Mul(average(x, kernel_size, stride, padding, False, True), factor)

    return pooled


def adaptive_averages(dims: int) -> Callable[..., Any]:
    """Of so many windows along each of the last ``dims`` axes, whatever their sizes are in a call:
    PyTorch's translation has the windows of the example."""

    def pooled(x: Any, output_size: Sequence[Any]) -> Any:
        if all(_is_number(count, 1) for count in output_size):
            axes = op.Constant(value_ints=[*range(-dims, 0)])
            return op.ReduceMean(x, axes, keepdims=1)
        kernel = _kernel(x, output_size, dims)
        if kernel:
            return op.AveragePool(x, kernel_shape=kernel, strides=kernel)
        found = x
        for axis, count in enumerate(output_size, start=-dims):
            found = _means(found, x, axis, count)
        return found

    return pooled


def _kernel(x: Any, output_size: Sequence[Any], dims: int) -> list[int]:
    """Of windows of one size; empty where they differ, or where it is not known."""
    sizes = list(x.shape)[-dims:]
    if len(x.shape) != dims + 2 or not all(isinstance(one, int) for one in (*sizes, *output_size)):
        return []
    parts = [divmod(size, count) for size, count in zip(sizes, output_size, strict=True)]
    return [width for width, _ in parts] if all(w and not rest for w, rest in parts) else []


def _means(found: Any, x: Any, axis: int, count: Any) -> Any:
    """Along one axis, of what is found of those before it in ``x``."""
    if _is_number(count, 1):
        return op.ReduceMean(found, op.Constant(value_ints=[axis]), keepdims=1)
    rows, inside = windows(x, axis, count)
    picked = op.Gather(found, rows, axis=len(x.shape) + axis)
    # what a window repeats is no part of it, and may be infinite
    behind = [*range(2, 1 - axis)]
    kept = op.Unsqueeze(inside, op.Constant(value_ints=behind)) if behind else inside
    zero = op.CastLike(op.Constant(value_float=0.0), x)
    inner = op.Constant(value_ints=[axis])
    sums = op.ReduceSum(op.Where(kept, picked, zero), inner, keepdims=0)
    sizes = op.ReduceSum(op.CastLike(kept, x), inner, keepdims=0)
    return op.Div(sums, sizes)


def _is_number(count: Any, number: int) -> bool:
    return isinstance(count, int) and count == number
