"""Attention heads as an axis of their own, and folded into the last axis.

Rewrites make an operator token-wise by folding the heads of its operands and splitting them off
its result again; the pass ``fold-heads`` then cancels what meets in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from optc.ir.graph import int_initializer
from optc.passes.canonicalize.dataflow import dims, emit

#: Exchanges the axes of heads and tokens.
SWAP = [0, 2, 1, 3]


@dataclass(frozen=True)
class Heads:
    """The layout of heads in a 4-D value.

    Attributes:
        count: Number of heads.
        size: Size of one head.
        tokens_last: The shape is [B, count, S, size] rather than [B, S, count, size].
    """

    count: int
    size: int
    tokens_last: bool


def heads_of(value: ir.Value) -> Heads | None:
    """The heads of a 4-D value: the axis of a fixed size between batch and last axis."""
    shape = dims(value)
    if len(shape) != 4 or not isinstance(shape[3], int):
        return None
    first, second = shape[1], shape[2]
    if isinstance(second, int) and not isinstance(first, int):
        return Heads(second, shape[3], tokens_last=False)
    if isinstance(first, int) and not isinstance(second, int):
        return Heads(first, shape[3], tokens_last=True)
    return None


def fold(before: ir.Node, value: ir.Value, heads: Heads) -> ir.Value:
    """``value`` as [B, S, count * size]; nodes are inserted in front of ``before``."""
    if heads.tokens_last:
        batch, _, tokens, _ = dims(value)
        shape = [batch, tokens, heads.count, heads.size]
        value = emit(before, "Transpose", [value], value, {"perm": SWAP}, shape)
    batch, tokens, _, _ = dims(value)
    return _reshape(before, value, [0, 0, -1], [batch, tokens, heads.count * heads.size])


def split(before: ir.Node, value: ir.Value, heads: Heads) -> ir.Value:
    """The reverse of `fold`: ``value`` [B, S, count * size] in the layout of ``heads``."""
    batch, tokens, _ = dims(value)
    shape = [batch, tokens, heads.count, heads.size]
    value = _reshape(before, value, [0, 0, heads.count, heads.size], shape)
    if not heads.tokens_last:
        return value
    swapped = [batch, heads.count, tokens, heads.size]
    return emit(before, "Transpose", [value], value, {"perm": SWAP}, swapped)


def _reshape(
    before: ir.Node, value: ir.Value, target: list[int], shape: list[int | str | None]
) -> ir.Value:
    graph = before.graph
    if not isinstance(graph, ir.Graph):
        raise ValueError(f"{before.name}: node is not in a graph")
    size = int_initializer(graph, target, f"shape_{len(target)}")
    return emit(before, "Reshape", [value, size], value, None, shape)
