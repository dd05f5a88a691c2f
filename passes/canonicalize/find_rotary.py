"""`find-rotary`: ``x * cos + rotate_half(x) * sin`` becomes ``RotaryEmbedding``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import constant_ints, remove_unused
from optc.passes.canonicalize.dataflow import (
    axis_of,
    dims,
    emit,
    last_axis_range,
    miss,
    operand,
    orders,
    producer,
    rank,
    scalar,
    substitute,
)
from optc.passes.canonicalize.heads import Heads, fold, heads_of, split
from optc.pipeline.base import Pass, PassReport
from optc.pipeline.phase import Effect, Phase

Cache = dict[ir.Value, ir.Value | None]


@dataclass(frozen=True)
class FindRotary(Pass):
    """Rotary position embedding of heads.

    1. ``x * cos + concat(-x[r/2:], x[:r/2]) * sin`` with cos and sin of a doubled angle.
    2. The same on ``x[..., :r]``, concatenated with ``x[..., r:]``: partial rotary.
    cos and sin are computed for half the width, once for all layers.
    """

    name: ClassVar[str] = "find-rotary"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        halves: Cache = {}
        for node in list(model.graph):
            if is_op(node, "Add"):
                _find_full(node, halves, report)
        for node in list(model.graph):
            if is_op(node, "Concat"):
                _find_partial(node, report)
        remove_unused(model)
        return report


def _find_full(node: ir.Node, halves: Cache, report: PassReport) -> None:
    """Legal case 1."""
    for straight, turned in orders(node):
        turned_by = producer(turned, "Mul")
        if turned_by is None:
            continue
        for rotated, sin in orders(turned_by):
            x = _rotated_half(rotated)
            if x is None:
                continue
            reason = _rewrite(node, x, straight, sin, halves)
            if reason:
                miss(report, node, f"not a rotary embedding I know: {reason}")
            else:
                report.add("rotary")
            return


def _rotated_half(value: ir.Value) -> ir.Value | None:
    """x if ``value`` is concat(-x[..., r/2:], x[..., :r/2])."""
    node = producer(value, "Concat")
    if node is None or len(node.inputs) != 2:
        return None
    negative = producer(node.inputs[0], "Neg")
    high = last_axis_range(operand(negative, 0)) if negative is not None else None
    low = last_axis_range(operand(node, 1))
    if high is None or low is None or high[0] is not low[0]:
        return None
    x = low[0]
    size = dims(x)[-1]
    half = size // 2 if isinstance(size, int) else 0
    return x if low[1:] == (0, half) and high[1:] == (half, 2 * half) else None


def _rewrite(
    node: ir.Node, x: ir.Value, straight: ir.Value, sin: ir.Value, halves: Cache
) -> str | None:
    """Rewrite case 1; the reason if it cannot be."""
    product = producer(straight, "Mul")
    cos = next((c for v, c in orders(product) if v is x), None) if product is not None else None
    if cos is None:
        return "the other term is not the same x times cos"
    heads = heads_of(x)
    if heads is None:
        return f"its operand has shape {dims(x)}, not heads"
    cos_half, sin_half = (_half(v, heads, halves) for v in (cos, sin))
    if cos_half is None or sin_half is None:
        return "cos or sin is not that of an angle concatenated with itself"
    turned = _emit(node, x, cos_half, sin_half, heads, heads.size)
    substitute(node.outputs[0], turned)
    return None


def _emit(
    node: ir.Node, x: ir.Value, cos: ir.Value, sin: ir.Value, heads: Heads, size: int
) -> ir.Value:
    folded = fold(node, x, heads)
    options = {"num_heads": heads.count, "rotary_embedding_dim": size, "interleaved": 0}
    return split(node, emit(node, "RotaryEmbedding", [folded, cos, sin], folded, options), heads)


def _half(value: ir.Value, heads: Heads, halves: Cache) -> ir.Value | None:
    """cos or sin [B, S, r/2] behind ``value``, which is it doubled and unsqueezed to heads."""
    node = producer(value, "Unsqueeze")
    axes = constant_ints(node.inputs[1]) if node is not None else None
    if node is None or axes != [1 if heads.tokens_last else 2]:
        return None
    full = operand(node, 0)
    if full not in halves:
        halves[full] = _halved(full)
    return halves[full]


def _halved(value: ir.Value) -> ir.Value | None:
    """The first half of ``value``'s last axis where the second equals it."""
    node = value.producer()
    if node is None:
        return None
    if is_op(node, "Concat"):
        same = len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]
        last = axis_of(node, value, 0) == (rank(value) or 0) - 1
        return node.inputs[0] if same and last else None
    if is_op(node, "Cos", "Sin", "Cast"):
        inner = _halved(operand(node, 0))
        return None if inner is None else _again(node, [inner], value)
    if is_op(node, "Mul"):
        for x, factor in orders(node):
            inner = _halved(x) if scalar(factor) is not None else None
            if inner is not None:
                return _again(node, [inner, factor], value)
    return None


def _again(node: ir.Node, inputs: list[ir.Value | None], value: ir.Value) -> ir.Value:
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    return emit(node, node.op_type, inputs, value, attributes, _half_shape(value))


def _half_shape(value: ir.Value) -> list[int | str | None]:
    *lead, size = dims(value)
    return [*lead, size // 2 if isinstance(size, int) else None]


def _find_partial(node: ir.Node, report: PassReport) -> None:
    """Legal case 2; ``node`` concatenates the rotated and the untouched part."""
    if len(node.inputs) != 2 or axis_of(node, node.outputs[0], 0) != 3:
        return
    rotary = _behind_split(operand(node, 0))
    rest = last_axis_range(operand(node, 1))
    if rotary is None or rest is None:
        return
    part = _behind_fold(operand(rotary, 0))
    first = last_axis_range(part) if part is not None else None
    heads = heads_of(rest[0])
    if first is None or heads is None or first[0] is not rest[0]:
        miss(report, node, "not a partial rotary embedding I know: its parts are of two values")
        return
    if first[1] != 0 or first[2] != rest[1] or rest[2] != heads.size:
        miss(report, node, "not a partial rotary embedding I know: the rotated part is not first")
        return
    cos, sin = operand(rotary, 1), operand(rotary, 2)
    substitute(node.outputs[0], _emit(node, rest[0], cos, sin, heads, first[2]))
    report.add("partial rotary")


def _behind_split(value: ir.Value) -> ir.Node | None:
    """The RotaryEmbedding whose result was split into heads as ``value``."""
    node = producer(value, "Transpose", "Reshape")
    if node is not None and node.op_type == "Transpose":
        node = producer(node.inputs[0], "Reshape")
    return producer(node.inputs[0], "RotaryEmbedding") if node is not None else None


def _behind_fold(value: ir.Value) -> ir.Value | None:
    """The 4-D value whose heads were folded into ``value``."""
    node = producer(value, "Reshape")
    swap = producer(node.inputs[0], "Transpose") if node is not None else None
    if swap is not None:
        return swap.inputs[0]
    return node.inputs[0] if node is not None else None
