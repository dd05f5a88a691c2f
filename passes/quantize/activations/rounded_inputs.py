"""What a model loses by inputs of layers that are rounded to 8 bits: KL measured.

A copy of the model computes each input x as x + switch · (rounded x − x). The switches are weights
of one value, 0, which `optc.reference.variants` puts 1 into: many variants share one run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optc.executable.executable import Int32
from optc.ir.functions import make_node
from optc.ir.linear import Linear
from optc.ir.weights import LazyWeight, as_lazy
from optc.passes.quantize.budget.groups import groups_of
from optc.progress import tell
from optc.target import usable_threads


def losses(
    model: ir.Model, tokens: Int32, chosen: Sequence[Sequence[int]], *, head: bool
) -> list[float]:
    """The KL in nats a token with the inputs of some groups rounded, for each choice of groups.

    Args:
        model: Dense form; it is not changed.
        tokens: Windows [W, S].
        chosen: Indices of groups, as of `groups_of`.
        head: Whether the head is a group.
    """
    from optc.reference.variants.measure import measure_variants  # brings ONNX Runtime

    copy = model.clone()
    switches = [_add_switch(copy, one.linears) for one in groups_of(copy, head=head)]
    on = _single(1.0)
    found = measure_variants(
        copy,
        tokens,
        [{switches[index]: on for index in one} for one in chosen],
        usable_threads(),
        lambda done, total: tell("sensitivity of activations", done, total),
    )
    return [float(kl) for kl in found]


def _add_switch(model: ir.Model, linears: Sequence[Linear]) -> ir.Value:
    """Let ``linears``, which read one value, read it rounded where their switch is 1."""
    x, first, graph = linears[0].x, linears[0].matmul, model.graph
    switch = ir.Value(name=f"{x.name}.rounded", type=ir.TensorType(ir.DataType.FLOAT))
    switch.const_value = weight = _single(0.0).transpose()
    switch.shape = ir.Shape(weight.shape.numpy())
    graph.register_initializer(switch)
    quantize = make_node(model, "QuantizeActivation", [x], name=f"{x.name}.quantize")
    q, scale = quantize.outputs
    wide = ir.node("Cast", [q], {"to": ir.DataType.FLOAT})
    rounded = ir.node("Mul", [wide.outputs[0], scale])
    error = ir.node("Sub", [rounded.outputs[0], x])
    switched = ir.node("Mul", [error.outputs[0], switch])
    read = ir.node("Add", [x, switched.outputs[0]])
    graph.insert_before(first, [quantize, wide, rounded, error, switched, read])
    for linear in linears:
        place = list(linear.matmul.inputs).index(x)
        linear.matmul.replace_input_with(place, read.outputs[0])
    read.outputs[0].type, read.outputs[0].shape = x.type, x.shape
    return switch


def _single(value: float) -> LazyWeight:
    """A weight of one value, by rows."""
    return as_lazy(ir.tensor(np.full((1, 1), value, np.float32), name="switch"))
