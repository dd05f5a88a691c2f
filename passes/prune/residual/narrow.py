"""A model whose residual stream has n instead of D channels.

With R [D, n] of orthonormal columns the stream is x R. Rows and columns of the layers that write
and read it shrink, and so does the embedding. What is left of x has less than its whole square:
the norms' mean is still that over D channels, for RMSNormalization over n channels with the scale
√(D / n) and an epsilon D / n times as large is x / √(|x|² / D + ε). The head reads the last norm's
result n' by W diag(γ) R B, of the norm's scale γ and a matrix B [n, n]; where the embedding has the
head's weight too, it keeps one table, E R, and n' goes through a layer [n, n] of its own first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optc.ir.graph import add_initializer
from optc.ir.linear import Linear, find_linear, head_of
from optc.ir.weights import LazyWeight, as_lazy
from optc.passes.prune.structured.cut import set_weight
from optc.passes.quantize.folding.fold import vector_of
from optc.passes.quantize.folding.weights import mixed_columns
from optc.passes.quantize.rotate.residual import NotTurnableError, Residual, turn_layers
from optc.reference.streams.gram import TOKENS, Float64, add_gram, mirror

#: Name of the weight of the layer before a head that shares the embedding's table.
TO_HEAD = "residual_to_head"


@dataclass(frozen=True)
class Basis:
    """What a narrower stream stands for.

    Attributes:
        columns: R [D, n]; x R is the stream.
        last: What the last norm gives, as a function of what the narrower one gives: [D, n], before
            the scale; R where nothing is fitted.
        to_head: The layer's weight before a head whose table the embedding shares, [n, n]; computed
            where it is None.
    """

    columns: Float64
    last: Float64
    to_head: Float64 | None = None

    @property
    def width(self) -> int:
        """n."""
        return self.columns.shape[1]


def table_of(residual: Residual) -> ir.Value:
    """The embedding's table [V, D]."""
    gather = residual.embedded.producer()
    table = None if gather is None else gather.inputs[0]
    if table is None or table.const_value is None:
        raise NotTurnableError("the embedding's table is computed")
    return table


def channels_of(residual: Residual) -> int:
    """D."""
    size: int = as_lazy(_tensor(table_of(residual))).rows_shape[1]
    return size


def has_bias(matmul: ir.Node) -> bool:
    """Whether a layer has one."""
    linear = find_linear(matmul)
    return linear is not None and linear.bias is not None


def head_behind(model: ir.Model, residual: Residual) -> Linear:
    """The head, which alone reads the last norm.

    Raises:
        NotTurnableError: Others read it too, or its scale is no constant of its own.
    """
    head, last = head_of(model), residual.last
    if head is None or last is None:
        raise NotTurnableError("the head reads no norm of the residual stream")
    if len(last.outputs[0].uses()) != 1:
        raise NotTurnableError("the head's input has other readers")
    scale = last.inputs[1]
    if scale is None or not scale.is_initializer() or len(scale.uses()) != 1:
        raise NotTurnableError("the last norm's scale is computed or used elsewhere too")
    return head


def is_tied(head: Linear, table: ir.Value) -> bool:
    """Whether the head's weight is the embedding's table."""
    return (
        isinstance(table.const_value, LazyWeight)
        and table.const_value.read_rows == head.weight.read_rows
    )


def to_head(head: Linear, residual: Residual, columns: Float64, last: Float64) -> Float64:
    """B [n, n] for which E R B n' is nearest to E diag(γ) L n', of the table E and of L [D, n], by
    what a step in every direction does to all logits together: (Rᵀ G R)⁻¹ Rᵀ G diag(γ) L with
    G = Eᵀ E. It is the least squares solution for inputs n' of one size in all directions."""
    rows, size = head.weight.rows_shape
    gram = np.zeros((size, size))
    for at in range(0, rows, TOKENS):
        tile = head.weight.read_rows(at, min(at + TOKENS, rows))
        add_gram(gram, np.asarray(tile, np.float32))
    mirror(gram)
    left = columns.T @ gram
    wanted = left @ (scale_of(residual)[:, None] * last)
    try:
        found = np.linalg.solve(left @ columns, wanted)
    except np.linalg.LinAlgError:  # a table that leaves directions out: of the solutions the least
        found = np.linalg.lstsq(left @ columns, wanted)[0]
    return np.asarray(found, np.float64)


def scale_of(residual: Residual) -> Float64:
    """γ [D] of the last norm."""
    scale = None if residual.last is None else residual.last.inputs[1]
    if scale is None:
        raise ValueError("a norm without a scale")
    return vector_of(scale).astype(np.float64)


def turn_stream(residual: Residual, columns: Float64) -> None:
    """Make the stream x R, of R [D, D], and what the last norm gives that, without its scale. The
    head is no longer one for it: a model to be run up to there."""
    turn_layers(residual, columns)
    table = table_of(residual)
    table.const_value = mixed_columns(as_lazy(_tensor(table)), columns)
    scale = None if residual.last is None else residual.last.inputs[1]
    if scale is not None:
        scale.const_value = ir.tensor(np.ones_like(vector_of(scale)), name=scale.name)


def narrow(model: ir.Model, residual: Residual, basis: Basis) -> None:
    """Make the stream of ``model`` that of ``basis``; weights are computed as they are read."""
    head, table = head_behind(model, residual), table_of(residual)
    tied, gamma = is_tied(head, table), scale_of(residual)[:, None]
    turn_layers(residual, basis.columns)
    for matmul in (*residual.writers, *(one for _, some in residual.readers for one in some)):
        _restate(matmul)
    _narrow_values(residual, basis.width, basis.columns.shape[0])
    embedding = mixed_columns(as_lazy(_tensor(table)), basis.columns)
    set_weight(table, embedding)
    if not tied:
        set_weight(head.initializer, mixed_columns(head.weight, gamma * basis.last))
        return
    if basis.to_head is None:
        raise ValueError("a table that the head shares, and no layer before the head")
    _insert(model, head, basis.to_head)
    set_weight(head.initializer, _called(embedding.transpose(), head.weight.name))


def _narrow_values(residual: Residual, size: int, whole: int) -> None:
    """Widths that the graph states, and norms over fewer channels."""
    norms = [*(norm for norm, _ in residual.readers), *filter(None, [residual.last])]
    for value in (*residual.stream, *(norm.outputs[0] for norm in norms)):
        _set_width(value, size)
    for norm in norms:
        scale = norm.inputs[1]
        if scale is None:
            raise ValueError(f"{norm.name}: a norm without a scale")
        vector = np.full(size, np.sqrt(whole / size), np.float32)
        scale.const_value = ir.tensor(vector, name=scale.name)
        scale.shape = ir.Shape(vector.shape)
        epsilon = norm.attributes.get_float("epsilon", 1e-5) * whole / size
        norm.attributes["epsilon"] = ir.AttrFloat32("epsilon", epsilon)


def _insert(model: ir.Model, head: Linear, matrix: Float64) -> None:
    """The layer before the head."""
    x = head.x
    rows = matrix.astype(np.float32)
    weight = LazyWeight(
        lambda start, stop: rows[start:stop],
        rows.shape,
        ir.DataType.FLOAT,
        TO_HEAD,
        transposed=True,
    )
    initializer = add_initializer(model.graph, weight, TO_HEAD)
    node = ir.Node("", "MatMul", [x, initializer], name=f"{TO_HEAD}.matmul")
    result = node.outputs[0]
    result.name, result.type, result.shape = f"{TO_HEAD}.result", x.type, x.shape
    model.graph.insert_before(head.matmul, [node])
    head.matmul.replace_input_with(0, result)


def _restate(matmul: ir.Node) -> None:
    """State the shape of a layer's weight, and of what it gives, as they are now."""
    linear = find_linear(matmul)
    if linear is None or not isinstance(linear.initializer.const_value, LazyWeight):
        raise ValueError(f"{matmul.name}: not a linear layer any more")
    set_weight(linear.initializer, linear.initializer.const_value)
    if linear.bias is not None and linear.bias.const_value is not None:
        linear.bias.shape = ir.Shape(linear.bias.const_value.shape.numpy())
    for node in linear.nodes:
        _set_width(node.outputs[0], linear.weight.rows_shape[0])


def _set_width(value: ir.Value, size: int) -> None:
    if value.shape is not None:
        value.shape = ir.Shape([*list(value.shape)[:-1], size])


def _called(weight: LazyWeight, name: str | None) -> LazyWeight:
    weight.name = name
    return weight


def _tensor(value: ir.Value) -> ir.TensorProtocol:
    if value.const_value is None:
        raise ValueError(f"{value.name} has no value")
    return value.const_value
