"""The loss of a model by inputs of layers that are rounded to 8 bits: KL, measured."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optc.ir.functions import make_node
from optc.ir.linear import Linear
from optc.passes.quantize.budget.groups import groups_of
from optc.proof.reference.variants.switch import add_switch, switch_on
from optc.runtime.executable.executable import Int32
from optc.system.hardware.target import usable_threads
from optc.system.progress import tell


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
    from optc.proof.reference.variants.measure import measure_variants  # brings ONNX Runtime

    copy = model.clone()
    switches = [_add_switch(copy, one.linears) for one in groups_of(copy, head=head)]
    on = switch_on()
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
    x, first = linears[0].x, linears[0].matmul
    quantize = make_node(model, "QuantizeActivation", [x], name=f"{x.name}.quantize")
    q, scale = quantize.outputs
    wide = ir.node("Cast", [q], {"to": ir.DataType.FLOAT})
    rounded = ir.node("Mul", [wide.outputs[0], scale])
    makes = [quantize, wide, rounded]
    switch, read = add_switch(model.graph, first, x, makes, rounded.outputs[0])
    for linear in linears:
        linear.matmul.replace_input_with(list(linear.matmul.inputs).index(x), read)
    return switch
