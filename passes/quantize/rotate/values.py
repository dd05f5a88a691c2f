"""The values of an attention turned in the weights that give and read them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.experts import ExpertLinear, find_expert_linear
from optc.ir.functions import DOMAIN, is_op
from optc.ir.linear import Linear, find_linear
from optc.passes.quantize.folding.fold import vector_of
from optc.passes.quantize.folding.places import Place
from optc.passes.quantize.folding.weights import (
    Float32,
    mixed_columns,
    mixed_rows,
    on_rows,
)


def head_size(place: Place) -> int:
    """Channels of a head of the values that an attention, the place's giver, averages.

    Raises:
        ValueError: No node gives what the place's layers read.
    """
    attention = place.x.producer()
    if attention is None:
        raise ValueError(f"{place.x.name}: given by nothing")
    return len(place.channels) // attention.attributes["num_heads"].as_int()


def turn_values(place: Place, turn: Float32) -> None:
    """Let each head's values come as v R, and the layer behind the attention read them so, of an
    orthogonal R [Dv, Dv]: the attention is linear in them."""
    size = len(turn)
    back, channels = np.ascontiguousarray(turn.T), int(place.channels.max()) + 1
    for part in place.parts:
        stop = part.start + channels
        if part.matmul is not None:
            linear = linear_at(part.matmul)
            turned = on_rows(linear.weight, part.start, stop, lambda rows: mixed_rows(rows, back))
            linear.initializer.const_value = turned
        else:
            vector = vector_of(part.initializer)
            heads = vector[part.start : stop].reshape(-1, size) @ turn
            vector[part.start : stop] = heads.ravel()
            part.initializer.const_value = ir.tensor(vector, name=part.initializer.name)
    for linear in place.linears:
        linear.initializer.const_value = mixed_columns(linear.weight, turn)


def by_head_behind(attention: ir.Node) -> ExpertLinear | None:
    """The matmul by head that alone reads what an attention gives, heads split off; None if
    something else reads it."""
    split = _only_reader(attention)
    if split is None or not is_op(split, "SplitHeads", domain=DOMAIN):
        return None
    return find_expert_linear(_only_reader(split))


def _only_reader(node: ir.Node) -> ir.Node | None:
    readers = {use.node for value in node.outputs for use in value.uses()}
    return readers.pop() if len(readers) == 1 else None


def linear_at(matmul: ir.Node) -> Linear:
    """The linear layer of a MatMul node.

    Raises:
        ValueError: It is none.
    """
    linear = find_linear(matmul)
    if linear is None:
        raise ValueError(f"{matmul.name}: not a linear layer any more")
    return linear
