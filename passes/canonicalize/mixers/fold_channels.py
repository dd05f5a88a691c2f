"""`fold-channels`: values with channels before tokens, [B, C, S], become [B, S, C], and
convolutions along the tokens ``optc::CausalConv``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.functions import is_op, make_node
from optc.ir.graph import (
    add_initializer,
    constant,
    constant_ints,
    int_initializer,
    remove_unused,
)
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.weights import LazyWeight, as_lazy
from optc.passes.canonicalize.dataflow import (
    axis_of,
    dims,
    insert,
    miss,
    operand,
    producer,
    rank,
    substitute,
    uses,
)
from optc.passes.canonicalize.fold_tokens import ANY_RANK

_TURN = [0, 2, 1]
Folded = dict[ir.Value, ir.Value]


@dataclass(frozen=True)
class FoldChannels(Pass):
    """``Transpose [B, S, C] -> [B, C, S]``, operators over channels, ``Transpose`` back.

    1. Such a ``Transpose`` falls away: its readers read [B, S, C].
    2. Element-wise operators work on [B, S, C]; ``Split`` and ``Slice`` along the channels work
       along the last axis; ``MatMul`` of a weight [N, C] and channels reads the weight turned.
    3. A ``Conv`` of each channel alone that reads K - 1 rows of zeros in front, and of what it
       gives the first S, becomes ``optc::CausalConv``. The zeros are its own ``pads``, or a
       ``Pad``.
    4. A ``Transpose`` of [B, C, S] to [B, S, C] falls away.
    Operators that do anything else keep reading [B, C, S].
    """

    name: ClassVar[str] = "fold-channels"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place; counted are convolutions, and the transposes of case 4."""
        report = PassReport()
        folded: Folded = {}
        for node in list(model.graph):
            if _turns_tokens(node):
                folded[node.outputs[0]] = operand(node, 0)
            elif any(value in folded for value in node.inputs if value is not None):
                _fold(model, node, folded, report)
        remove_unused(model)
        return report


def _turns_tokens(node: ir.Node) -> bool:
    """True for a ``Transpose`` of [B, S, C] to [B, C, S]."""
    if not is_op(node, "Transpose") or list(node.attributes.get_ints("perm", ())) != _TURN:
        return False
    _, tokens, channels = dims(operand(node, 0))
    return isinstance(channels, int) and not isinstance(tokens, int)


def _fold(model: ir.Model, node: ir.Node, folded: Folded, report: PassReport) -> None:
    if is_op(node, "Transpose"):
        if list(node.attributes.get_ints("perm", ())) == _TURN:
            substitute(node.outputs[0], folded[operand(node, 0)])
            report.add("transpose")
    elif is_op(node, "Pad"):
        _follow_pad(model, node, folded, report)
    elif is_op(node, "Conv"):
        _fold_convolution(model, node, (operand(node, 0), 0), folded, report)
    elif is_op(node, "Split", "Slice"):
        _fold_part(model.graph, node, folded)
    elif is_op(node, "MatMul"):
        _fold_product(model.graph, node, folded)
    elif not node.domain and node.op_type in ANY_RANK:
        _fold_element_wise(model.graph, node, folded)


def _fold_product(graph: ir.Graph, node: ir.Node, folded: Folded) -> None:
    """Case 2: a weight times channels."""
    weight = operand(node, 0)
    if weight.const_value is None or len(dims(weight)) != 2 or operand(node, 1) not in folded:
        return
    turned = add_initializer(
        graph, as_lazy(weight.const_value).transpose(), f"{weight.name}.turned"
    )
    _emit(node, [folded[operand(node, 1)], turned], [], folded)


def _fold_element_wise(graph: ir.Graph, node: ir.Node, folded: Folded) -> None:
    """Case 2; the other operands must be folded, too, or constants of one number a channel."""
    source = next(value for value in node.inputs if value in folded)
    inputs: list[ir.Value | None] = []
    for value in node.inputs:
        if value is None or value in folded:
            inputs.append(None if value is None else folded[value])
        elif (turned := _by_channel(graph, value)) is not None:
            inputs.append(turned)
        else:
            return
    if dims(node.outputs[0]) == dims(source):
        _emit(node, inputs, list(node.attributes.values()), folded)


def _by_channel(graph: ir.Graph, value: ir.Value) -> ir.Value | None:
    """A constant of one number, or [C, 1] as [C]; None for what is neither."""
    tensor = constant(value)
    if tensor is None or isinstance(tensor, LazyWeight):
        return None
    shape = tuple(int(size) for size in tensor.numpy().shape)
    if all(size == 1 for size in shape) and len(shape) <= 1:
        return value
    if shape[-1] != 1 or len(shape) not in (2, 3) or (len(shape) == 3 and shape[0] != 1):
        return None
    return add_initializer(graph, ir.tensor(tensor.numpy().reshape(-1)), f"{value.name}.channels")


def _fold_part(graph: ir.Graph, node: ir.Node, folded: Folded) -> None:
    """Case 2: a part of the channels."""
    source = operand(node, 0)
    inputs = [folded.get(v, v) if v is not None else None for v in node.inputs]
    attributes = [a for a in node.attributes.values() if a.name != "axis"]
    if is_op(node, "Slice"):
        axes = constant_ints(node.inputs[3]) if len(node.inputs) > 3 else None
        if axes not in ([1], [-2]):
            return
        inputs[3] = int_initializer(graph, [-1], "last_axis")
    elif axis_of(node, source, 0) == 1:
        attributes.append(ir.AttrInt64("axis", -1))
    else:
        return
    _emit(node, inputs, attributes, folded)


def _emit(
    node: ir.Node, inputs: list[ir.Value | None], attributes: list[ir.Attr], folded: Folded
) -> None:
    """A copy of ``node`` whose results have their channels last."""
    copy = ir.Node(
        "", node.op_type, inputs, attributes, num_outputs=len(node.outputs), name=node.name
    )
    for old, new in zip(node.outputs, copy.outputs, strict=True):
        batch, channels, tokens = dims(old)
        new.type, new.shape = old.type, ir.Shape([batch, tokens, channels])
        folded[old] = new
    insert(node, copy)


def _follow_pad(model: ir.Model, node: ir.Node, folded: Folded, report: PassReport) -> None:
    """Case 3, where rows of zeros in front are a ``Pad``'s."""
    pads, axes = (constant_ints(v) for v in (*node.inputs[1:], None, None, None)[:3:2])
    given = node.inputs[2] if len(node.inputs) > 2 else None
    value = constant(given)
    nothing = given is None or (value is not None and not np.any(value.numpy()))
    zeros = nothing and node.attributes.get_string("mode", "constant") == "constant"
    front = None
    if axes is None and pads is not None and pads[:2] + pads[3:] == [0, 0, 0, 0, 0]:
        front = pads[2]
    elif axes in ([2], [-1]) and pads is not None and pads[1] == 0:
        front = pads[0]
    for reader in uses(node.outputs[0]):
        if is_op(reader, "Conv"):
            rows = front if zeros and front is not None else -1
            _fold_convolution(model, reader, (operand(node, 0), rows), folded, report)


def _fold_convolution(
    model: ir.Model,
    node: ir.Node,
    read: tuple[ir.Value, int],
    folded: Folded,
    report: PassReport,
) -> None:
    """Case 3; it reads a value, and so many rows of zeros in front of it; -1: of others."""
    source, front = folded[read[0]], read[1]
    weight, result = _filters(node), _first_rows(node, source, front)
    channels = dims(source)[-1]
    if weight is None or not isinstance(channels, int) or result is None:
        reason = "it is not one of each channel that reads the tokens before"
        miss(report, node, f"a convolution along the tokens: {reason}")
        return
    kernel = weight.rows_shape[1]
    name = operand(node, 1).name or f"{node.name}.weight"
    inputs: list[ir.Value | None] = [
        source,
        add_initializer(model.graph, weight, f"{name}.filters"),
        _bias(node),
    ]
    new = make_node(
        model, "CausalConv", inputs, {"channels": channels, "kernel": kernel}, name=node.name
    )
    new.outputs[0].shape = ir.Shape(dims(source))
    insert(node, new)
    folded[result] = new.outputs[0]
    report.add("convolution")


def _filters(node: ir.Node) -> LazyWeight | None:
    """The weight [C, 1, K] of a convolution of each channel alone as [C, K]."""
    value = operand(node, 1)
    sizes = dims(value)
    channels = dims(operand(node, 0))[1]
    ones = (node.attributes.get_ints(name, ()) for name in ("strides", "dilations"))
    plain = all(set(each) <= {1} for each in ones)
    automatic = node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET"
    one_each = len(sizes) == 3 and sizes[:2] == [channels, 1]
    if automatic or not plain or not one_each or node.attributes.get_int("group", 1) != channels:
        return None
    while (before := producer(value, "Squeeze", "Unsqueeze", "Reshape", "Identity")) is not None:
        value = operand(before, 0)
    tensor, kernel = value.const_value, sizes[2]
    if tensor is None or not isinstance(kernel, int) or kernel < 2 or dims(value)[0] != channels:
        return None
    whole = as_lazy(tensor)
    return LazyWeight(
        lambda start, stop: whole.read_rows(start, stop).reshape(stop - start, kernel),
        (int(str(channels)), kernel),
        whole.dtype,
        whole.name or "filters",
    )


def _bias(node: ir.Node) -> ir.Value | None:
    """The bias of a convolution; None if there is none, or it is zero."""
    value = node.inputs[2] if len(node.inputs) > 2 else None
    tensor = constant(value)
    if tensor is not None and not isinstance(tensor, LazyWeight) and not np.any(tensor.numpy()):
        return None
    return value


def _first_rows(node: ir.Node, source: ir.Value, front: int) -> ir.Value | None:
    """The value [B, C, S] of as many rows as ``source`` [B, S, C] has, behind ``front`` rows of
    zeros, each of which sees itself and those before; None if there is none."""
    kernel = dims(operand(node, 1))[-1]
    pads = list(node.attributes.get_ints("pads", (0, 0)))
    if not isinstance(kernel, int) or front < 0 or pads[0] + front != kernel - 1:
        return None
    if pads[1] == 0:
        return node.outputs[0]
    tokens, readers = dims(source)[1], uses(node.outputs[0])
    if pads[1] != kernel - 1 or len(readers) != 1 or not _takes_first(readers[0], tokens):
        return None
    return readers[0].outputs[0]


def _takes_first(node: ir.Node, tokens: int | str | None) -> bool:
    """True for a ``Slice`` of the last axis from its beginning to one of size ``tokens``."""
    if not is_op(node, "Slice") or rank(node.outputs[0]) != 3 or tokens is None:
        return False
    starts, axes, steps = (
        constant_ints(node.inputs[i]) if i < len(node.inputs) else None for i in (1, 3, 4)
    )
    whole = starts == [0] and axes in ([2], [-1]) and steps in (None, [1])
    return whole and dims(node.outputs[0])[-1] == tokens
