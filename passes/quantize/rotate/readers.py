"""Inputs of linear layers that can be rotated, and their readers."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

import onnx_ir as ir

from optc.ir.experts import feeds_router, find_expert_linears
from optc.ir.linear import Linear, find_linears, head_of
from optc.ir.pipeline.base import PassReport
from optc.ir.weights import LazyWeight
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.runtime.executable.block_hadamard import largest_block

#: Metadata key of a value that comes rotated already.
_ROTATED = "optc.rotated"


@dataclass
class Input:
    """An input of linear layers.

    Attributes:
        x: The value [..., K].
        width: K.
        block: Channels of a block of its rotation.
        readers: Their MatMul nodes, in the graph's order.
        weights: Their weights by rows, by initializer.
    """

    x: ir.Value
    width: int
    block: int
    readers: list[ir.Node] = field(default_factory=list)
    weights: dict[ir.Value, LazyWeight] = field(default_factory=dict)


def mark_rotated(x: ir.Value) -> None:
    """Note that a value comes rotated: a second rotation would gather what the first has spread."""
    x.metadata_props[_ROTATED] = "true"


def quantized_inputs(
    model: ir.Model, quantize: QuantizeWeights, block: int, report: PassReport, *, head: bool
) -> list[Input]:
    """The inputs of layers that ``quantize`` quantizes and whose weights may be rotated.

    Why others are left alone goes into the report; the head is one of them with ``head``.
    """
    last, kept = head_of(model), kept_grids(model, quantize)
    floats = quantize.float_inputs(model)
    found: dict[ir.Value, Input] = {}
    refused: dict[ir.Value, str] = {}
    for linear in _layers(model):
        is_head = last is not None and linear.matmul is last.matmul
        if feeds_router(linear.output) or linear.x in floats or (is_head and not head):
            continue  # stays float, or as it is
        width = linear.weight.rows_shape[1]
        one = found.setdefault(linear.x, Input(linear.x, width, largest_block(width, block)))
        one.readers.append(linear.matmul)
        one.weights[linear.initializer] = linear.weight
        reason = reason_to_leave(linear, kept)
        reason = reason or ("" if one.block else f"{width} channels are fewer than a block has")
        if _ROTATED in linear.x.metadata_props:
            reason = "its values come rotated"
        if reason:
            refused.setdefault(linear.x, reason)
    _refuse_shared(found, refused)
    for x, reason in refused.items():
        report.skip(found[x].readers[0], reason)
    return [one for x, one in found.items() if x not in refused]


def reason_to_leave(linear: Linear, kept: Set[ir.Value]) -> str:
    """The reason why a layer's weight is left as it is; empty if it may be rotated.

    Args:
        linear: The layer.
        kept: What `kept_grids` gives.
    """
    if linear.pruned:
        return "weights that were pruned would be zero no longer"
    return "the checkpoint's grid is kept" if linear.initializer in kept else ""


def kept_grids(model: ir.Model, quantize: QuantizeWeights) -> Set[ir.Value]:
    """The weights that ``quantize`` leaves on their checkpoint's grids of fewer than 8 bits: those
    of layers that all do so which read one input. Where one does not, its input is rotated, and
    the others are rounded with it: later they may be one weight."""
    head = head_of(model)
    by_input: dict[ir.Value, list[Linear]] = {}
    for linear in _layers(model):
        if not feeds_router(linear.output):
            by_input.setdefault(linear.x, []).append(linear)

    def keeps(linear: Linear) -> bool:
        is_head = head is not None and linear.matmul is head.matmul
        scheme = quantize.scheme_of(linear, PassReport(), head=is_head)
        return quantize.keeps_grid(linear, scheme, head=is_head)

    groups = (group for group in by_input.values() if all(map(keeps, group)))
    return {linear.initializer for group in groups for linear in group}


def _layers(model: ir.Model) -> list[Linear]:
    """Linear layers and those of experts, in the graph's order."""
    order = {node: place for place, node in enumerate(model.graph)}
    experts = [one.linear for one in find_expert_linears(model.graph)]
    return sorted([*find_linears(model), *experts], key=lambda one: order[one.matmul])


def _refuse_shared(found: dict[ir.Value, Input], refused: dict[ir.Value, str]) -> None:
    """Refuse inputs whose weights are read by others, too, which read no rotated input."""
    changed = True
    while changed:
        changed = False
        rotated = {node for x, one in found.items() if x not in refused for node in one.readers}
        for x, one in found.items():
            users = {use.node for weight in one.weights for use in weight.uses()}
            if x not in refused and not users <= rotated:
                refused[x] = "another node reads the same weight"
                changed = True
