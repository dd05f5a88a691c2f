"""Attention in standard operators: MatMul, what becomes of scores, Softmax, MatMul."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import constant_ints, is_constant
from optc.passes.canonicalize.dataflow import axis_of, dims, operand, producer, rank, uses
from optc.passes.canonicalize.heads import Heads, heads_of

#: What a value passes through unchanged.
_SAME = ("Reshape", "Cast", "Identity", "CastLike")
#: What may lie between products and their softmax.
_BETWEEN = frozenset({*_SAME, "Mul", "Div", "Add", "Sub", "Where", "Max", "Min", "Clip", "Neg"})
#: Swaps the last two axes.
_TURNED = {3: [0, 2, 1], 4: [0, 1, 3, 2]}


@dataclass(frozen=True)
class Spelled:
    """An attention in standard operators.

    Attributes:
        scores: The softmax's operand.
        products: Of queries and keys.
        q: Queries [B, H, S, Dk].
        k: Keys, a value and what it must be transposed by to be [B, Hkv, S, Dk]; None if by
            nothing.
        v: Values [B, Hkv, S, Dv].
        results: What is to be replaced, each [B, H, S, Dv].
    """

    scores: ir.Value
    products: ir.Value
    q: ir.Value
    k: tuple[ir.Value, list[int] | None]
    v: ir.Value
    results: tuple[ir.Value, ...]


def match(softmax: ir.Node) -> Spelled | str:
    """The attention around a softmax, or why there is none; empty if it is nothing like one."""
    last = (rank(softmax.outputs[0]) or 0) - 1
    if axis_of(softmax, softmax.outputs[0], -1) != last:
        return ""
    weights = _forward(softmax.outputs[0])
    weigh = weights[0] if len(weights) == 1 else None
    if weigh is None or not is_op(weigh, "MatMul"):
        return ""
    if is_constant(operand(weigh, 1)):
        return ""
    found = list(_products(operand(softmax, 0), set()))
    if len(found) != 1:
        return f"{len(found)} products of computed values lie behind its softmax"
    first = found[0].inputs
    q, v = _by_head(first[0]), _by_head(weigh.inputs[1])
    k = _turned(first[1])
    if q is None or k is None or v is None:
        return "queries, keys or values are not [B, heads, S, size]"
    results = _results(weigh.outputs[0])
    if not results:
        return "its result is not [B, heads, S, size]"
    return Spelled(operand(softmax, 0), found[0].outputs[0], q, k, _unrepeated(v), results)


def _forward(value: ir.Value) -> list[ir.Node]:
    """Readers of softmax weights, past what leaves them the same."""
    readers = uses(value)
    if len(readers) == 1 and is_op(readers[0], *_SAME):
        return _forward(readers[0].outputs[0])
    return readers


def _products(value: ir.Value, seen: set[ir.Node]) -> list[ir.Node]:
    """The products of two computed values that ``value`` is made of."""
    node = value.producer()
    if node is None or node in seen:
        return []
    seen.add(node)
    if is_op(node, "MatMul"):
        return [] if any(is_constant(v) for v in node.inputs) else [node]
    if node.domain or node.op_type not in _BETWEEN:
        return []
    return [found for v in node.inputs if v is not None for found in _products(v, seen)]


def _by_head(value: ir.Value | None) -> ir.Value | None:
    """[B, H, S, D], where ``value`` is that or [B*H, S, D] made of it."""
    node = producer(value, "Reshape")
    if value is not None and rank(value) == 3 and node is not None:
        value = operand(node, 0)
    heads = None if value is None else heads_of(value)
    return value if heads is not None and heads.tokens_last else None


def _turned(value: ir.Value | None) -> tuple[ir.Value, list[int] | None] | None:
    """Keys of a product's second operand [B, Hkv, Dk, S], or [B*H, Dk, S]."""
    node = producer(value, "Transpose")
    if node is None:
        return None
    source, perm = operand(node, 0), list(node.attributes["perm"].as_ints())
    turned = _TURNED.get(len(perm))
    if turned is None:
        return None
    both = [perm[axis] for axis in turned]
    if both == list(range(len(perm))):
        keys = _by_head(source)
        return None if keys is None else (_unrepeated(keys), None)
    shape = dims(source)
    if len(perm) == 4 and len(shape) == 4:
        return source, both
    return None


def _unrepeated(value: ir.Value) -> ir.Value:
    """[B, Hkv, S, D], where ``value`` is that repeated for the query heads that share each."""
    reshape = producer(value, "Reshape")
    expand = None if reshape is None else producer(operand(reshape, 0), "Expand")
    unsqueeze = None if expand is None else producer(operand(expand, 0), "Unsqueeze")
    if unsqueeze is None or constant_ints(unsqueeze.inputs[1]) not in ([2], [-3]):
        return value
    source = operand(unsqueeze, 0)
    heads = heads_of(source)
    return source if heads is not None and heads.tokens_last else value


def _results(value: ir.Value) -> tuple[ir.Value, ...]:
    """The [B, H, S, D] values of a result, or of a result [B*H, S, D]."""
    if rank(value) == 4:
        return (value,)
    readers = uses(value)
    made = tuple(node.outputs[0] for node in readers)
    whole = all(
        is_op(node, "Reshape") and _is_by_head(heads_of(node.outputs[0])) for node in readers
    )
    return made if whole else ()


def _is_by_head(heads: Heads | None) -> bool:
    return heads is not None and heads.tokens_last
