"""Lowering of Medusa's heads: a function of their own beside the step, on the same weights."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optc.backends.tvm.lowering.walk import Handler, Lowering, Refused, rows_of, times, width_of
from optc.backends.tvm.program import Call, Function, Tensor
from optc.ir.forms.ragged import MEDUSA_HIDDEN

#: Name of the function; its argument is `MEDUSA_HIDDEN`, f32 [H, D].
FUNCTION = "medusa"


def hidden_input(model: ir.Model) -> Tensor:
    """The argument of the heads."""
    value = next(value for value in model.graph.inputs if value.name == MEDUSA_HIDDEN)
    shape = value.shape
    if shape is None or not isinstance(shape[1], int):
        raise ValueError(f"{MEDUSA_HIDDEN} has no width")
    return Tensor(MEDUSA_HIDDEN, "float32", ("H", shape[1]))


def split_heads(
    calls: Sequence[Call], hidden: Tensor, weights: Sequence[Tensor], result: str
) -> tuple[list[Call], Function]:
    """The step's own calls, and the function of the heads: all that depends on their argument.

    It takes all weights, as the step does: a loader passes the same tensors to both.
    """
    reached = {hidden.name}
    mine: list[Call] = []
    others: list[Call] = []
    for call in calls:
        if reached & set(call.inputs):
            reached.update(tensor.name for tensor in call.outputs)
            mine.append(call)
        else:
            others.append(call)
    return others, Function(FUNCTION, (hidden, *weights), tuple(mine), result)


def _residual_heads(lowering: Lowering, node: ir.Node) -> None:
    x, y = (lowering.tensor(value) for value in node.inputs)
    heads, width = node.attributes.get_int("heads", 0), width_of(x)
    if heads <= 0 or width_of(y) != heads * width:
        raise Refused(f"{width_of(y)} values are not {heads} heads of {width}")
    rows = times(heads, rows_of(x))
    config = {"heads": heads, "width": width}
    (out,) = lowering.call("residual_heads", config, [x, y], [("float32", (rows, width))])
    lowering.tensors[node.outputs[0]] = out


HANDLERS = {("optc", "ResidualHeads"): Handler(_residual_heads)}
