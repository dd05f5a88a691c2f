"""`rotate-kv`: keys, queries and values are rotated by head before they become integers."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import width
from optc.ir.pipeline.base import Pass, PassReport
from optc.ir.pipeline.phase import Effect
from optc.passes.numerics.hadamard import hadamard
from optc.passes.quantize.folding.places import VALUES, Place, find_places
from optc.passes.quantize.folding.scaled_pairs import scalable
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.rotate.blocks import InBlocks, rotation_node
from optc.passes.quantize.rotate.readers import kept_grids, mark_rotated, reason_to_leave
from optc.passes.quantize.rotate.rotated_rows import rotated_rows
from optc.passes.quantize.rotate.values import (
    by_head_behind,
    head_size,
    linear_at,
    turn_values,
)
from optc.passes.quantize.smooth.smooth import LATER
from optc.runtime.executable.block_hadamard import BLOCKS


@dataclass(frozen=True)
class RotateKV(InBlocks):
    """Attentions read rotated operands: keys and queries behind their rotary embedding, values by
    rotated weights.

    int8 and int4 keys, queries and values have one scale for each token and head, or group of
    channels. A few channels are many times larger than the others, and take the range. The same
    rotation of keys and queries keeps every score, (q T) · (k T) = q · k; that of values is undone
    by the layer behind the attention (QuaRot, Ashkboos et al., 2024, arXiv:2404.00456).

    Legal cases, by attention:
        1. q and k get ``optc::BlockHadamard`` behind them, with blocks that lie within heads; keys
           that several attentions read are rotated once. Where both have norms of their own, the
           norms' scales are balanced before, pair by pair, as ``balance-keys`` does it by a text;
        2. values of one linear layer, which others than the layers behind the attention do not
           read, are rotated by a Hadamard matrix of a head's order in both weights. What those
           layers read is rotated then, so that ``rotate-activations`` leaves it.
    """

    name: ClassVar[str] = "rotate-kv"
    effects: ClassVar[Effect] = Effect.TURNS_KV
    unlike_class: ClassVar[str] = (
        "values are rotated, as keys are while the engine runs; "
        "--set rotate-kv.block=0 --set rotate-activations.block=0 leaves them as they are"
    )
    before: ClassVar[tuple[str, ...]] = ("rotate-kv", "rotate-activations", "calibrate", *LATER)

    def rotate(
        self,
        model: ir.Model,
        quantize: QuantizeWeights,
        later: Sequence[Pass],
        report: PassReport,
    ) -> None:
        """Rewrite ``model`` in place."""
        kept = kept_grids(model, quantize)
        for place in find_places(model, PassReport()):
            if place.kind == VALUES:
                _rotate_values(place, kept, report)
        turned: dict[tuple[ir.Value, int], ir.Value] = {}
        for node in [n for n in model.graph if is_op(n, "Attention", domain=DOMAIN)]:
            _rotate_latents(model, node, self.block, kept, report)
            sizes = [_head_size(node, operand) for operand in range(2)]
            block = max((b for b in BLOCKS if b <= self.block and _divides(b, sizes)), default=0)
            if not block:
                report.skip(node, f"no block divides heads of {sizes[1] or 'unknown'} channels")
                continue
            _make_even(node, report)
            for operand in range(2):
                _rotate(model, node, operand, block, turned)
            report.add(f"keys in blocks of {block}")


def _rotate_values(place: Place, kept: Set[ir.Value], report: PassReport) -> None:
    size, attention = head_size(place), place.x.producer()
    matrix = hadamard(size)
    if matrix is None:
        report.skip(attention, f"no Hadamard matrix of order {size} is known")
        return
    givers = [linear_at(part.matmul) for part in place.parts if part.matmul is not None]
    reasons = [reason_to_leave(linear, kept) for linear in (*givers, *place.linears)]
    if any(reasons):
        report.skip(attention, next(filter(None, reasons)))
        return
    turn_values(place, (matrix / np.sqrt(size)).astype(np.float32))
    mark_rotated(place.x)
    report.add("values")


def _rotate_latents(
    model: ir.Model, attention: ir.Node, most: int, kept: Set[ir.Value], report: PassReport
) -> None:
    """Case 3."""
    reader, value = by_head_behind(attention), attention.inputs[2]
    if reader is None or value is None:
        return
    channels = reader.linear.weight.rows_shape[1]
    block = max((b for b in BLOCKS if b <= most and channels % b == 0), default=0)
    reason = reason_to_leave(reader.linear, kept)
    if reason or not block:
        report.skip(attention, reason or f"no block divides latents of {channels} channels")
        return
    _rotate(model, attention, 2, block, {})
    rotated = rotated_rows(reader.linear.weight, block)
    reader.linear.initializer.const_value = rotated
    mark_rotated(reader.linear.x)
    report.add(f"latents in blocks of {block}")


def _divides(block: int, sizes: list[int]) -> bool:
    return all(size and size % block == 0 for size in sizes)


def _head_size(attention: ir.Node, place: int) -> int:
    """Channels of a head of q or k; 0 if that is not known."""
    value = attention.inputs[place]
    heads = attention.attributes.get_int("num_heads" if place == 0 else "kv_num_heads", 0)
    channels = width(value) if value is not None else None
    return channels // heads if channels and heads else 0


def _make_even(attention: ir.Node, report: PassReport) -> None:
    """Scale the rotary pairs by what the norms of queries and keys say of their sizes: a rotation
    spreads large channels of keys over those that large queries read."""
    operands = scalable(attention)
    squares = None if isinstance(operands, str) or operands.even else operands.norms()
    if squares is not None and not isinstance(operands, str):
        operands.make_even(*squares)
        report.add("pairs of norms scaled")


def _rotate(
    model: ir.Model,
    attention: ir.Node,
    place: int,
    block: int,
    turned: dict[tuple[ir.Value, int], ir.Value],
) -> None:
    """Let an attention read q or k rotated."""
    value = attention.inputs[place]
    if value is None:
        raise ValueError(f"{attention.name}: an operand is missing")
    if (value, block) not in turned:
        node = rotation_node(model, value, block, width(value) or 0)
        model.graph.insert_before(attention, [node])
        turned[value, block] = node.outputs[0]
    attention.replace_input_with(place, turned[value, block])
