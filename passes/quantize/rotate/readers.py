"""Inputs of linear layers that can be rotated, and their readers."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from optc.executable.block_hadamard import largest_block
from optc.ir.experts import feeds_router, find_expert_linears
from optc.ir.linear import Linear, find_linears, head_of
from optc.ir.weights import LazyWeight
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.pipeline.base import PassReport

#: Metadata key of a value that comes rotated already.
_ROTATED = "optc.rotated"
#: Bits of a given grid from which on it loses next to nothing to round again.
_FINE = 8


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
    last = head_of(model)
    found: dict[ir.Value, Input] = {}
    refused: dict[ir.Value, str] = {}
    experts = [one.linear for one in find_expert_linears(model.graph)]
    order = {node: place for place, node in enumerate(model.graph)}
    for linear in sorted([*find_linears(model), *experts], key=lambda one: order[one.matmul]):
        is_head = last is not None and linear.matmul is last.matmul
        if feeds_router(linear.output) or (is_head and not head):
            continue  # stays float, or as it is
        width = linear.weight.rows_shape[1]
        one = found.setdefault(linear.x, Input(linear.x, width, largest_block(width, block)))
        one.readers.append(linear.matmul)
        one.weights[linear.initializer] = linear.weight
        reason = reason_to_leave(linear, quantize, is_head=is_head)
        reason = reason or ("" if one.block else f"{width} channels are fewer than a block has")
        if _ROTATED in linear.x.metadata_props:
            reason = "its values come rotated"
        if reason:
            refused.setdefault(linear.x, reason)
    _refuse_shared(found, refused)
    for x, reason in refused.items():
        report.skip(found[x].readers[0], reason)
    return [one for x, one in found.items() if x not in refused]


def reason_to_leave(linear: Linear, quantize: QuantizeWeights, *, is_head: bool = False) -> str:
    """The reason why a layer's weight is left as it is; empty if it may be rotated."""
    if linear.pruned:
        return "weights that were pruned would be zero no longer"
    scheme = quantize.scheme_of(linear, PassReport(), head=is_head)
    kept = quantize.given_weights().rows(linear.weight, scheme, linear.name)
    if kept is not None and kept.bits < _FINE:
        return f"the checkpoint's grid of {kept.bits} bits is kept"
    return ""


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
