"""Operators of PyTorch that its exporter to ONNX has no translation of, or a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx.defs import OpSchema
from onnxscript import opset23 as op
from onnxscript.values import Op, Opset

from optc.importer.tensors.modules.attending import attending
from optc.importer.tensors.modules.averages import adaptive_averages, averages
from optc.importer.tensors.modules.greatest import greatest
from optc.importer.tensors.modules.recurrent import recurrent
from optc.importer.tensors.modules.scattered import scattered

_ATEN = torch.ops.aten
_INT64 = int(ir.DataType.INT64)
#: An operator of ONNX Runtime, whose engines run all modules that need it.
_INVERSE = Op(
    Opset("com.microsoft", 1),
    "Inverse",
    OpSchema(
        "Inverse",
        "com.microsoft",
        1,
        inputs=[OpSchema.FormalParameter("X", "T")],
        outputs=[OpSchema.FormalParameter("Y", "T")],
        type_constraints=[("T", ["tensor(float16)", "tensor(float)", "tensor(double)"], "")],
    ),
)


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


def _hypotenuse(x: Any, y: Any) -> Any:
    """By the ratio of both: their squares may be larger than any number."""
    a, b = op.Abs(x), op.Abs(y)
    longer, shorter = op.Max(a, b), op.Min(a, b)
    one = op.CastLike(op.Constant(value_float=1.0), x)
    ratio = op.Where(op.Equal(shorter, longer), one, op.Div(shorter, longer))
    return op.Mul(longer, op.Sqrt(op.Add(one, op.Mul(ratio, ratio))))


def _log_of_sigmoid(x: Any) -> Any:
    """Finite wherever x is: a sigmoid below the smallest number is 0, and has no logarithm."""
    return op.Neg(op.Softplus(op.Neg(x)))


def _log_of_sum(x: Any, y: Any) -> Any:
    """By the larger one: exponentials of large numbers are infinite, and all of small ones 0."""
    same = op.CastLike(op.Constant(value_float=0.0), x)  # of equal infinities, too
    apart = op.Where(op.Equal(x, y), same, op.Abs(op.Sub(x, y)))
    return op.Add(op.Max(x, y), op.Softplus(op.Neg(apart)))


def _bucket(x: Any, boundaries: Any, out_int32: bool = False, right: bool = False) -> Any:
    return _places(boundaries, x, out_int32, right)


def _place(
    sequence: Any,
    x: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    if sorter is not None:
        raise NotImplementedError("searchsorted with a sorter")
    return _places(sequence, x, out_int32, right or side == "right")


def _places(sequence: Any, x: Any, out_int32: bool, right: bool) -> Any:
    """Of each value the number of those in its sorted row that are smaller, or not larger; all of
    them for what is no number."""
    last = op.Constant(value_ints=[-1])
    rows = sequence
    if len(sequence.shape) > 1:  # a row for each row of values
        rows = op.Unsqueeze(sequence, op.Constant(value_ints=[-2]))
    below = op.Not((op.Greater if right else op.GreaterOrEqual)(rows, op.Unsqueeze(x, last)))
    kind = ir.DataType.INT32 if out_int32 else ir.DataType.INT64
    return op.ReduceSum(op.Cast(below, to=int(kind)), last, keepdims=0)


def _inverse(x: Any) -> Any:
    """An engine gives numbers that are not finite where there is none, and raises nothing."""
    return _INVERSE(x)


def _middle(x: Any, dim: int, keepdim: bool = False) -> Any:
    """The median, of an even number the smaller one of both in the middle, and its place."""
    size = op.Gather(op.Shape(x), op.Constant(value_ints=[dim]))
    half = op.Div(op.Add(size, op.Constant(value_ints=[1])), op.Constant(value_ints=[2]))
    return _smallest(x, half, dim, keepdim)


def _kth(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return _smallest(x, op.Constant(value_ints=[k]), dim, keepdim)


def _smallest(x: Any, count: Any, dim: int, keepdim: bool) -> Any:
    """The largest of so many smallest, and its place."""
    values, places = op.TopK(x, count, axis=dim, largest=0, sorted=1)
    last = op.Sub(count, op.Constant(value_ints=[1]))
    found = [op.Gather(one, last, axis=dim) for one in (values, places)]
    return (
        tuple(found)
        if keepdim
        else tuple(op.Squeeze(one, op.Constant(value_ints=[dim])) for one in found)
    )


def _prod_of_axes(x: Any, dims: Sequence[int], *, output_dtype: int = -1) -> Any:
    """The translation of `torch.cumprod`, too."""
    return op.ReduceProd(_summed(x, output_dtype), op.Constant(value_ints=list(dims)), keepdims=0)


#: Translations by operator, as `torch.onnx.export` takes them.
TRANSLATIONS: Mapping[Callable[..., Any], Callable[..., Any] | Sequence[Callable[..., Any]]] = {
    _ATEN.prod.default: _prod,
    _ATEN.prod.dim_int: _prod_of_axis,
    torch.ops.prims.prod.default: _prod_of_axes,
    _ATEN.median.dim: _middle,
    _ATEN.kthvalue.default: _kth,
    _ATEN.sort.stable: _sorted,
    _ATEN._cdist_forward.default: _distances,
    _ATEN.hypot.default: _hypotenuse,
    _ATEN.log_sigmoid.default: _log_of_sigmoid,
    _ATEN.logaddexp.default: _log_of_sum,
    _ATEN.bucketize.Tensor: _bucket,
    _ATEN.searchsorted.Tensor: _place,
    _ATEN.avg_pool2d.default: averages(2),
    _ATEN.avg_pool3d.default: averages(3),
    _ATEN.adaptive_avg_pool1d.default: adaptive_averages(1),
    _ATEN.adaptive_avg_pool2d.default: adaptive_averages(2),
    _ATEN.adaptive_avg_pool3d.default: adaptive_averages(3),
    _ATEN.scaled_dot_product_attention.default: attending,
    _ATEN.scatter_reduce.two: scattered,
    _ATEN.rnn_tanh.input: recurrent("Tanh"),
    _ATEN.rnn_relu.input: recurrent("Relu"),
    _ATEN.adaptive_max_pool2d.default: greatest(2),
    _ATEN.adaptive_max_pool3d.default: greatest(3),
    _ATEN.linalg_inv.default: _inverse,
    _ATEN.inverse.default: _inverse,
}
