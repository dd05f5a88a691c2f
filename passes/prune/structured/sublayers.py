"""Attentions and MLPs that can be taken out of a decoder's residual stream, found by dataflow.

A block's result is a sum over its source and the results of its sub-layers, whatever order they are
added in, behind each other or side by side. A sub-layer can go if all it adds comes from one linear
layer: with that weight zero it adds nothing but the layer's bias, which stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import is_constant, remove_unused
from optc.ir.linear import Linear, find_linear, linear_of
from optc.ir.pipeline.base import PassReport
from optc.proof.reference.partition import Block, mixes_tokens, partition

#: Kinds of sub-layers.
ATTENTION, MLP = "attention", "mlp"
#: What may stand between the linear layer and the sum: zero stays zero.
_KEEP_ZERO = frozenset({"RMSNormalization", "Mul", "Div", "Cast", "Identity"})


@dataclass(frozen=True)
class SubLayer:
    """One term of the residual stream.

    Attributes:
        kind: `ATTENTION`, also of a convolution along the tokens, or `MLP`.
        block: Index of its block.
        add: The sum that it enters.
        term: What it adds.
        writer: The linear layer that gives that.
        linears: All its linear layers.
        attentions: All its attentions.
    """

    kind: str
    block: int
    add: ir.Node
    term: ir.Value
    writer: Linear
    linears: tuple[Linear, ...]
    attentions: tuple[ir.Node, ...]

    @property
    def weights(self) -> int:
        """The number of its weights."""
        shapes = (one.weight.rows_shape for one in self.linears)
        return sum(rows * columns for rows, columns in shapes)


def find_sublayers(model: ir.Model, report: PassReport) -> list[SubLayer]:
    """All of them, in order; why others cannot go is in the report.

    Raises:
        optc.errors.UnsupportedError: The model cannot be cut at its layers.
    """
    found = []
    for index, block in enumerate(partition(model).blocks):
        terms = dict(_terms(_sum_of(block), block))
        base = [value for value in terms if not _linears_of(value, block)]
        if len(base) != 1:
            report.skip(block.nodes[-1], "its block is no sum over what comes into it")
            continue
        for value, add in terms.items():
            if value in base:
                continue
            writer = _writer(value)
            if writer is None or len(value.uses()) != 1:
                report.skip(add, "what it adds does not vanish with the weight of one linear layer")
                continue
            nodes = _behind(value, block)
            linears = tuple(one for node in nodes if (one := find_linear(node)) is not None)
            attentions = tuple(n for n in nodes if is_op(n, "Attention", domain=DOMAIN))
            kind = ATTENTION if any(map(mixes_tokens, nodes)) else MLP
            found.append(SubLayer(kind, index, add, value, writer, linears, attentions))
    return found


def remove_sublayers(model: ir.Model, sublayers: list[SubLayer]) -> None:
    """Take them out of the graph; what only they needed goes, too."""
    for one in sublayers:
        index = list(one.add.inputs).index(one.term)
        other = one.add.inputs[1 - index]
        if other is None:
            raise ValueError(f"{one.add.name}: a sum of one operand")
        if one.writer.bias is not None:
            other = _with_bias(one.add, other, one.writer.bias)
        ir.convenience.replace_all_uses_with([one.add.outputs[0]], [other])
    remove_unused(model)


def _with_bias(add: ir.Node, other: ir.Value, bias: ir.Value) -> ir.Value:
    """The sum with the bias alone in the place of the sub-layer's result."""
    if add.graph is None:
        raise ValueError(f"{add.name}: node is in no graph")
    node = ir.Node("", "Add", [other, bias], name=f"{add.name}.bias")
    result, whole = node.outputs[0], add.outputs[0]
    result.name, result.type, result.shape = f"{whole.name}.bias", whole.type, whole.shape
    add.graph.insert_before(add, [node])
    return result


def _sum_of(block: Block) -> ir.Value:
    """The last sum of the block: of the last block, what comes before its norm."""
    value = block.result
    while (node := value.producer()) is not None and value is not block.source:
        inner = [v for v in node.inputs if v is not None and not is_constant(v)]
        if len(inner) != 1:
            break
        value = inner[0]
    return value


def _terms(value: ir.Value, block: Block) -> Iterator[tuple[ir.Value, ir.Node]]:
    """Terms of a sum with the Add that each enters; sums of sums are one."""
    node = value.producer()
    if node is None or value is block.source or not _is_sum(node):
        return
    for operand in node.inputs:
        if operand is None:
            continue
        inner = operand.producer()
        if operand is not block.source and inner is not None and _is_sum(inner):
            yield from _terms(operand, block)
        else:
            yield operand, node


def _is_sum(node: ir.Node) -> bool:
    return is_op(node, "Add") and not any(is_constant(v) for v in node.inputs)


def _writer(term: ir.Value) -> Linear | None:
    value = term
    while (linear := linear_of(value)) is None:
        node = value.producer()
        if node is None or not is_op(node, *_KEEP_ZERO) or len(value.uses()) != 1:
            return None
        inner = [v for v in node.inputs if v is not None and not is_constant(v)]
        if len(inner) != 1:
            return None
        value = inner[0]
    stays = linear.bias is not None and value is not term  # a norm would make another one of it
    return linear if not stays and len(linear.output.uses()) == 1 else None


def _linears_of(value: ir.Value, block: Block) -> list[Linear]:
    nodes = _behind(value, block)
    return [one for node in nodes if (one := find_linear(node)) is not None]


def _behind(value: ir.Value, block: Block) -> list[ir.Node]:
    """Nodes of the block that ``value`` needs, down to the residual stream."""
    inside, seen, stack = set(block.nodes), dict[ir.Node, None](), [value]
    while stack:
        current = stack.pop()
        node = current.producer()
        if node is None or node not in inside or node in seen:
            continue
        if current is not value and _is_sum(node):
            continue  # the residual stream
        seen[node] = None
        stack.extend(v for v in node.inputs if v is not None)
    return list(seen)
