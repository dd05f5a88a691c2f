"""The writers and readers of the residual stream of a model, found by dataflow.

The stream starts at the embedding's output. Each Add to it is a writer, each norm of it a reader.
It can be turned by one matrix if all writers are linear layers, all readers RMSNormalizations
(their root mean square stays) and what these give is read by linear layers alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import constant
from optc.ir.linear import Linear, find_linear, head_of, linear_of
from optc.passes.quantize.folding.fold import vector_of
from optc.passes.quantize.folding.weights import Matrix, mixed_columns, mixed_rows, scaled_columns


class NotTurnableError(Exception):
    """Why the stream cannot be turned; the message is the reason."""


@dataclass
class Residual:
    """The residual stream [..., D].

    Attributes:
        embedded: The embedding's output, where it starts.
        stream: All values that it has on its way, that one first.
        writers: MatMul nodes of the linear layers whose results are added to it.
        readers: Norms of it, each with the MatMul nodes of the linear layers that read its result.
        last: The norm that the head reads.
    """

    embedded: ir.Value
    stream: list[ir.Value] = field(default_factory=list)
    writers: list[ir.Node] = field(default_factory=list)
    readers: list[tuple[ir.Node, list[ir.Node]]] = field(default_factory=list)
    last: ir.Node | None = None


def find_residual(model: ir.Model) -> Residual:
    """The residual stream of ``model``, in dense form.

    Raises:
        NotTurnableError: Something else writes or reads it.
    """
    gathers = [use.node for use in model.graph.inputs[0].uses()]
    if len(gathers) != 1 or not is_op(gathers[0], "Gather"):
        raise NotTurnableError("tokens do not go through one embedding")
    found = Residual(gathers[0].outputs[0])
    head = head_of(model)
    found.stream.append(found.embedded)
    for value in found.stream:  # grows while it is walked
        for use in value.uses():
            result = _step(found, head, value, use.node)
            if result is not None and result not in found.stream:
                found.stream.append(result)
    if found.last is None:
        raise NotTurnableError("the head reads no norm of the residual stream")
    return found


def turn_layers(residual: Residual, turn: Matrix) -> None:
    """Make the stream x R in all layers that read or write it, of R [D, n] with orthonormal
    columns: norms' scales go into the layers behind them and become one, and R into the weights.

    The embedding and the last norm stay as they are.
    """
    for norm, readers in residual.readers:
        scale = norm.inputs[1]
        if scale is None:
            raise ValueError(f"{norm.name}: a norm without a scale")
        factors = vector_of(scale)
        for linear in map(_linear, readers):
            scaled = scaled_columns(linear.weight, factors)
            linear.initializer.const_value = mixed_columns(scaled, turn)
        scale.const_value = ir.tensor(np.ones_like(factors), name=scale.name)
    back: Matrix = turn.T.copy()
    for linear in map(_linear, residual.writers):
        linear.initializer.const_value = mixed_rows(linear.weight, back)
        if linear.bias is not None:
            bias = (vector_of(linear.bias) @ turn).astype(np.float32)
            linear.bias.const_value = ir.tensor(bias, name=linear.bias.name)


def _step(found: Residual, head: Linear | None, value: ir.Value, node: ir.Node) -> ir.Value | None:
    """Note one use of the stream; its next value, if the use gives one."""
    if is_op(node, "Mul", "Div") and (factor := constant(_other(node, value))) is not None:
        if factor.size == 1 and node.inputs[0] is value:
            return node.outputs[0]
    elif is_op(node, "Add"):
        writer = linear_of(_other(node, value))
        if writer is None or len(writer.output.uses()) != 1 or not _own(writer):
            raise NotTurnableError(
                f"{_name(node)}: what it adds to the residual stream is no linear layer's own"
            )
        found.writers.append(writer.matmul)
        return node.outputs[0]
    elif is_op(node, "RMSNormalization"):
        _note_norm(found, head, node)
        return None
    raise NotTurnableError(f"{_name(node)}: a {node.op_type} reads the residual stream")


def _note_norm(found: Residual, head: Linear | None, norm: ir.Node) -> None:
    scale, readers = norm.inputs[1], [use.node for use in norm.outputs[0].uses()]
    if head is not None and head.matmul in readers:
        found.last = norm
        return
    if scale is None or not scale.is_initializer() or len(scale.uses()) != 1:
        raise NotTurnableError(f"{_name(norm)}: its scale is computed or used elsewhere too")
    for node in readers:
        linear = find_linear(node)
        if linear is None or linear.x is not norm.outputs[0] or not _own(linear):
            raise NotTurnableError(f"{_name(norm)}: it has other readers than linear layers' own")
    found.readers.append((norm, readers))


def _own(linear: Linear) -> bool:
    """True if weight and bias are no other layer's too."""
    return len(linear.initializer.uses()) == 1 and (
        linear.bias is None or (linear.bias.is_initializer() and len(linear.bias.uses()) == 1)
    )


def _other(node: ir.Node, value: ir.Value) -> ir.Value | None:
    return node.inputs[1] if node.inputs[0] is value else node.inputs[0]


def _name(node: ir.Node) -> str:
    return node.name or node.op_type


def _linear(matmul: ir.Node) -> Linear:
    linear = find_linear(matmul)
    if linear is None:
        raise ValueError(f"{matmul.name}: not a linear layer any more")
    return linear
