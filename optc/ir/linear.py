"""Linear layers of the graph: a MatMul with a constant weight and, if there is one, its bias."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import add_initializer, constant, is_constant
from optc.ir.sources import Source, side_by_side, sources_metadata
from optc.ir.weights import LazyWeight, as_lazy, concatenate_rows

#: Metadata key of a matrix that is no layer's weight: nothing quantizes or merges it.
_FIXED = "optc.fixed"
#: Metadata of a weight whose zeros were chosen: what rounds it keeps them.
_PRUNED = {"optc.pruned": "true"}


def fixed_metadata() -> dict[str, str]:
    """Metadata for the initializer of a matrix that belongs to the arithmetic, such as a rotation:
    a MatMul by it is no linear layer, and stays as it is."""
    return {_FIXED: "true"}


def mark_pruned(initializer: ir.Value) -> None:
    """Note that the zeros of a weight were chosen (`Linear.pruned`)."""
    initializer.metadata_props.update(_PRUNED)


@dataclass(frozen=True)
class Linear:
    """``x @ weight (+ bias)``; ``weight`` has rows [N, K], the graph sees [K, N].

    Attributes:
        matmul: The MatMul node.
        add: The Add of the bias, if there is one.
        x: The operand [..., K].
        initializer: The weight's value in the graph.
        weight: The weight by rows.
        bias: Value of the bias [N], if there is one.
    """

    matmul: ir.Node
    add: ir.Node | None
    x: ir.Value
    initializer: ir.Value
    weight: LazyWeight
    bias: ir.Value | None

    @property
    def output(self) -> ir.Value:
        """The result [..., N], after the bias."""
        return (self.add or self.matmul).outputs[0]

    @property
    def nodes(self) -> list[ir.Node]:
        """MatMul, then Add if there is one."""
        return [self.matmul] if self.add is None else [self.matmul, self.add]

    @property
    def pruned(self) -> bool:
        """True if weights were set to zero on purpose, so that they stay exactly zero."""
        return _PRUNED.keys() <= self.initializer.metadata_props.keys()

    @property
    def name(self) -> str:
        """Name of the weight."""
        return self.initializer.name or self.weight.name or "weight"


def weights_in(linear: Linear) -> int:
    """Number of elements of its weight."""
    return math.prod(linear.weight.rows_shape)


def find_linear(node: ir.Node | None) -> Linear | None:
    """The linear layer whose MatMul is ``node``; None if its weight is not a constant [K, N],
    or one that stays as it is (`fixed_metadata`)."""
    if node is None or not is_op(node, "MatMul"):
        return None
    x, initializer = node.inputs
    tensor = constant(initializer)
    if x is None or initializer is None or tensor is None or len(tensor.shape) != 2:
        return None
    if _FIXED in initializer.metadata_props:
        return None
    weight = _by_columns(tensor)
    add, bias = _bias_of(node, weight.rows_shape[0])
    return Linear(node, add, x, initializer, weight, bias)


def find_linears(model: ir.Model) -> list[Linear]:
    """All linear layers of the graph, in its order."""
    return [linear for node in model.graph if (linear := find_linear(node)) is not None]


def linear_of(value: ir.Value | None) -> Linear | None:
    """The linear layer whose result, bias included, is ``value``."""
    node = None if value is None else value.producer()
    if node is not None and is_op(node, "Add"):
        node = next((v.producer() for v in node.inputs if v is not None and v.producer()), None)
    linear = find_linear(node)
    return linear if linear is not None and linear.output is value else None


def head_of(model: ir.Model) -> Linear | None:
    """The linear layer that gives the logits (through a softcap at most)."""
    value = model.graph.outputs[0]
    while (node := value.producer()) is not None:
        linear = find_linear(node)
        if linear is not None:
            return linear
        operands = [v for v in node.inputs if v is not None and not is_constant(v)]
        if node.domain == DOMAIN or len(operands) != 1:
            return None
        value = operands[0]
    return None


def merge_linears(graph: ir.Graph, parts: Sequence[Linear]) -> tuple[list[ir.Node], ir.Value]:
    """One linear layer that computes all ``parts`` (of one operand) side by side.

    Returns:
        The new nodes, not yet inserted, and their result [..., sum of N].
    """
    name = merged_name([part.name for part in parts])
    weight = concatenate_rows([part.weight for part in parts], name)
    metadata = sources_metadata(sources(parts))
    if any(part.pruned for part in parts):
        metadata |= _PRUNED
    initializer = add_initializer(graph, weight, name, metadata)
    name = initializer.name or name  # layers that share weights are merged once for each
    matmul = ir.Node("", "MatMul", [parts[0].x, initializer], name=f"{name}.matmul")
    nodes = [matmul]
    if any(part.bias is not None for part in parts):
        bias_name = f"{name}.bias"
        bias = np.concatenate([_bias_array(part) for part in parts])
        bias_value = add_initializer(graph, ir.tensor(bias, name=bias_name), bias_name)
        nodes.append(ir.Node("", "Add", [matmul.outputs[0], bias_value], name=f"{name}.add"))
    for node in nodes:
        kind = node.op_type.lower()
        node.outputs[0].name = f"{name}.{kind}"
        node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        shape = parts[0].x.shape
        if shape is not None:
            node.outputs[0].shape = ir.Shape([*list(shape)[:-1], weight.rows_shape[0]])
    return nodes, nodes[-1].outputs[0]


def merged_name(names: Sequence[str]) -> str:
    """The names with what they share stated once: ``layers.0.q_proj+k_proj+v_proj.weight``."""
    split = [name.split(".") for name in names]
    head = _shared(split)
    tail = _shared([parts[len(head) :][::-1] for parts in split])[::-1]
    middle = "+".join(".".join(p[len(head) : len(p) - len(tail)]) for p in split)
    return ".".join([*head, middle, *tail])


def _shared(lists: Sequence[Sequence[str]]) -> list[str]:
    """The longest common prefix that leaves every list at least one element."""
    shared = []
    for items in zip(*(parts[:-1] for parts in lists), strict=False):
        if len(set(items)) != 1:
            break
        shared.append(items[0])
    return shared


def sources(parts: Sequence[Linear]) -> tuple[Source, ...]:
    """Original tensors of the rows of ``parts`` side by side."""
    return side_by_side([(part.initializer, part.weight.rows_shape[0]) for part in parts])


def _bias_array(part: Linear) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    tensor = constant(part.bias)
    if tensor is None:
        return np.zeros(part.weight.rows_shape[0], np.float32)
    return tensor.numpy().astype(np.float32, copy=False)


def _by_columns(tensor: ir.TensorProtocol) -> LazyWeight:
    """The weight [K, N] by rows [N, K], whichever way it is stored."""
    if isinstance(tensor, LazyWeight) and not tensor.transposed:
        return as_lazy(ir.tensor(tensor.numpy(), name=tensor.name), transposed=True)
    return as_lazy(tensor, transposed=True)


def _bias_of(matmul: ir.Node, rows: int) -> tuple[ir.Node | None, ir.Value | None]:
    result = matmul.outputs[0]
    uses = list(result.uses())
    if len(uses) != 1 or result.is_graph_output() or not is_op(uses[0].node, "Add"):
        return None, None
    add = uses[0].node
    other = add.inputs[1 - uses[0].idx]
    tensor = constant(other)
    if tensor is None or tuple(tensor.shape) != (rows,):
        return None, None
    return add, other
