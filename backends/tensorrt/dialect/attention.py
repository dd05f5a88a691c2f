"""The forms of Attention that TensorRT implements, and computes in one fused kernel."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

#: Types with fused kernels.
_FUSED = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
#: Largest head dimension with a fused kernel.
_MAX_HEAD_DIM = 256


def check_attention(node: ir.Node) -> Iterator[str]:
    """Problems of an Attention node.

    The traps: ``nonpad_kv_seqlen`` is dropped, and causal masks are aligned with the first key
    whatever the standard says, so that masks must be explicit; float32 has no fused kernel.
    """
    inputs = [*node.inputs, *[None] * 7][:7]
    if inputs[4] is not None or inputs[5] is not None:
        yield "past keys and values are not implemented; write them with TensorScatter"
    if inputs[6] is not None:
        yield "nonpad_kv_seqlen would be dropped without a word; write the mask out"
    query, key, value, mask = inputs[:4]
    dtype = None if query is None else query.dtype
    if dtype is not None and dtype not in _FUSED:
        yield f"{dtype.name.lower()} has no fused kernel, only float16 and bfloat16 have"
    if mask is not None and mask.dtype not in (None, dtype, ir.DataType.BOOL) and dtype is not None:
        yield f"the mask is {_name(mask)}, it must be {_name(query)} like the query, or bool"
    yield from _dimension_problems(node, query, key, value)
    length, columns = _dim(key, -2), _dim(mask, -1)
    if length is not None and columns is not None and columns < length:
        yield f"the mask covers {columns} of {length} keys"


def _dimension_problems(
    node: ir.Node, query: ir.Value | None, key: ir.Value | None, value: ir.Value | None
) -> Iterator[str]:
    width, kv_heads = _dim(query, -1), node.attributes.get_int("kv_num_heads", 0)
    heads = node.attributes.get_int("q_num_heads", 0)
    if width is not None and _rank(query) == 3 and heads:
        width //= heads
    if width is not None and width > _MAX_HEAD_DIM:
        yield f"a head dimension of {width} has no fused kernel, {_MAX_HEAD_DIM} is the largest"
    of_key, of_value = _dim(key, -1), _dim(value, -1)
    if None not in (of_key, of_value) and of_key != of_value:
        per = f" of {kv_heads} heads" if kv_heads else ""
        yield f"values are {of_value} wide{per} and keys {of_key}: they must be equal, pad one"


def _rank(value: ir.Value | None) -> int:
    return 0 if value is None or value.shape is None else len(value.shape)


def _dim(value: ir.Value | None, axis: int) -> int | None:
    """A static dimension; None if it is unknown."""
    if value is None or value.shape is None or len(value.shape) < abs(axis):
        return None
    dim = value.shape[axis]
    return dim if isinstance(dim, int) else None


def _name(value: ir.Value | None) -> str:
    return "?" if value is None or value.dtype is None else value.dtype.name.lower()
