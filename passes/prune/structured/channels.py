"""Channels that can be taken out together, found by dataflow on the dense form.

What linear layers read, x [..., K], is followed backwards to the linear layers that give it, by
operators that keep channels apart: products, sums, activations, an attention, rotary embeddings and
norms of single heads. All these values are made of as many *units*, slices of the last axis of one
width a value: a neuron of an MLP is one channel of each; a KV head with its query heads is Dk
channels of keys, Dv of values, and H/Hkv times as many of queries and of x. A unit is taken out of
every value at once: rows of the layers behind, columns of the readers, elements of vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op, operand
from optc.ir.graph import constant, constant_ints, width
from optc.ir.linear import Linear, find_linear, find_linears, head_of, linear_of
from optc.ir.pipeline.base import PassReport

#: Kinds of units.
NEURONS, KV_GROUPS = "neurons", "kv groups"
_NORMS = ("RMSNormalization", "LayerNormalization")
_ONE = frozenset({"Sigmoid", "Tanh", "Gelu", "Erf", "Relu", "Softplus", "Sqrt", "Neg", "Cast"})
_TWO = frozenset({"Add", "Sub", "Mul", "Div", "Pow"})


@dataclass(frozen=True)
class Rows:
    """Rows of a linear layer that give one of the values.

    Attributes:
        matmul: The layer's node.
        start: The first row.
        size: How many there are.
        split: The Split that cuts the layer's result into parts, if one does.
    """

    matmul: ir.Node
    start: int
    size: int
    split: ir.Node | None = None

    @property
    def linear(self) -> Linear:
        """The layer, with its weight as it is now."""
        return _linear(self.matmul)


@dataclass(frozen=True)
class Channels:
    """Units of one x.

    Attributes:
        kind: `NEURONS` or `KV_GROUPS`.
        units: How many there are.
        x: What the readers read, [..., K].
        readers: MatMul nodes of the linear layers that read x; they lose columns.
        rows: What gives the values; they lose rows.
        values: x, and all values between, each [..., units * n], with their widths.
        vectors: Constants [units * n] that operators between read, also one number a head.
        heads: Nodes between that state a number of heads.
    """

    kind: str
    units: int
    x: ir.Value
    readers: tuple[ir.Node, ...]
    rows: tuple[Rows, ...]
    values: Mapping[ir.Value, int]
    vectors: tuple[ir.Value, ...]
    heads: tuple[ir.Node, ...]

    @property
    def linears(self) -> list[Linear]:
        """The readers, with their weights as they are now."""
        return [_linear(node) for node in self.readers]

    @property
    def name(self) -> str:
        """Name of the first reader's weight."""
        return self.linears[0].name

    @property
    def weights_each(self) -> int:
        """Weights that go with one unit."""
        columns = sum(one.weight.rows_shape[0] for one in self.linears) * (
            self.linears[0].weight.rows_shape[1] // self.units
        )
        given = sum(r.size // self.units * r.linear.weight.rows_shape[1] for r in self.rows)
        return columns + given


class _RefusedError(Exception):
    """Why no unit can be taken out; the message is the reason."""


@dataclass
class _Found:
    """The parts of a graph that a walk has met so far."""

    values: dict[ir.Value, int] = field(default_factory=dict)
    nodes: set[ir.Node] = field(default_factory=set)
    rows: list[Rows] = field(default_factory=list)
    vectors: dict[ir.Value, None] = field(default_factory=dict)
    heads: dict[ir.Node, None] = field(default_factory=dict)

    @property
    def attentions(self) -> list[ir.Node]:
        return [node for node in self.heads if is_op(node, "Attention", domain=DOMAIN)]


def find_channels(model: ir.Model, kind: str, report: PassReport) -> list[Channels]:
    """All channels of one kind, in the order of the graph.

    Why inputs of other linear layers have none goes into the report, what came nearest first.
    """
    head = head_of(model)
    by_input: dict[ir.Value, list[Linear]] = {}
    for linear in find_linears(model):
        by_input.setdefault(linear.x, []).append(linear)
    found, misses = [], []
    for x, linears in by_input.items():
        if head is not None and any(one.matmul is head.matmul for one in linears):
            continue
        met = _Found()
        try:
            channels = _channels(x, linears, met)
        except _RefusedError as refused:
            if not is_op(x.producer(), *_NORMS):  # where a sub-layer begins
                near = bool(met.attentions) == (kind == KV_GROUPS), len(met.nodes)
                misses.append((near, linears[0].matmul, str(refused)))
            continue
        if channels.kind == kind:
            found.append(channels)
    for _, node, reason in sorted(misses, key=lambda miss: miss[0], reverse=True):
        report.skip(node, reason)
    return found


def _channels(x: ir.Value, linears: list[Linear], found: _Found) -> Channels:
    _walk(x, found)
    attentions = found.attentions
    if len(attentions) > 1:
        raise _RefusedError("several attentions give its input")
    whole = linears[0].weight.rows_shape[1]
    units = attentions[0].attributes["kv_num_heads"].as_int() if attentions else whole
    readers = tuple(linear.matmul for linear in linears)
    _check(x, units, found, readers)
    return Channels(
        KV_GROUPS if attentions else NEURONS,
        units,
        x,
        readers,
        tuple(found.rows),
        found.values,
        tuple(found.vectors),
        tuple(found.heads),
    )


def _walk(value: ir.Value, found: _Found) -> int:
    """Collect what gives ``value``, down to linear layers; returns its width."""
    if value not in found.values:
        found.values[value] = _width(value, found)
    return found.values[value]


def _width(value: ir.Value, found: _Found) -> int:
    linear, node = linear_of(value), value.producer()
    if linear is not None:
        found.nodes.update(linear.nodes)
        found.rows.append(Rows(linear.matmul, 0, linear.weight.rows_shape[0]))
        return found.rows[-1].size
    if node is None:
        raise _RefusedError("its input is the model's")
    found.nodes.add(node)
    if is_op(node, "Split"):
        found.rows.append(_split_rows(node, value))
        return found.rows[-1].size
    sizes = [_walk(operand, found) for operand in _operands(node, found)]
    if is_op(node, "Attention", domain=DOMAIN):
        heads, kv_heads = (node.attributes[n].as_int() for n in ("num_heads", "kv_num_heads"))
        return sizes[2] // kv_heads * heads
    if len(set(sizes)) != 1:
        raise _RefusedError(f"{node.op_type} of operands of several widths gives its input")
    return sizes[0]


def _operands(node: ir.Node, found: _Found) -> Iterator[ir.Value]:
    """Inputs of a node that keeps channels, or heads, apart; constants are noted."""
    if is_op(node, *_ONE):
        yield _given(node, 0)
    elif is_op(node, *_TWO):
        for value in (_given(node, 0), _given(node, 1)):
            tensor = constant(value)
            if tensor is None:
                yield value
            elif tensor.size != 1:
                found.vectors[value] = None
    elif is_op(node, "RotaryEmbedding") or is_op(node, "HeadRMSNorm", domain=DOMAIN):
        found.heads[node] = None
        yield _given(node, 0)
    elif is_op(node, "Attention", domain=DOMAIN):
        found.heads[node] = None
        if operand(node, "distance_bias") is not None:
            raise _RefusedError("its heads have biases by distance")
        for vector in (operand(node, name) for name in ("sinks", "alibi_slopes")):
            if vector is not None:
                found.vectors[vector] = None
        yield from (_given(node, index) for index in range(3))
    else:
        raise _RefusedError(f"{node.op_type}, which mixes channels, gives its input")


def _split_rows(split: ir.Node, value: ir.Value) -> Rows:
    sizes = constant_ints(split.inputs[1]) if len(split.inputs) > 1 else None
    whole = split.inputs[0]
    linear = linear_of(whole)
    if sizes is None or linear is None or whole is None or len(whole.uses()) != 1:
        raise _RefusedError("a Split of something else than one linear layer's result gives it")
    index = list(split.outputs).index(value)
    return Rows(linear.matmul, sum(sizes[:index]), sizes[index], split)


def _check(x: ir.Value, units: int, found: _Found, readers: tuple[ir.Node, ...]) -> None:
    """Nothing else reads the values, and each is made of ``units``."""
    if not found.rows:
        raise _RefusedError("no linear layer gives its input")
    for value, size in found.values.items():
        if size % units:
            raise _RefusedError(f"{value.name} is {size} wide, which {units} units do not divide")
        inside = {*found.nodes, *(readers if value is x else ())}
        if value.is_graph_output() or any(use.node not in inside for use in value.uses()):
            raise _RefusedError(f"{value.name} has other readers")
    for node in found.heads:
        if node.attributes["num_heads"].as_int() % units:
            raise _RefusedError(f"{node.name}: its heads are not {units} groups")
    sizes = {*found.values.values(), *(n.attributes["num_heads"].as_int() for n in found.heads)}
    for vector in found.vectors:
        if width(vector) not in sizes or not _is_own(vector):
            raise _RefusedError(f"the constant {vector.name} is none by channel, or used elsewhere")
    matmuls = [*readers, *(rows.matmul for rows in found.rows)]
    for linear in map(_linear, dict.fromkeys(matmuls)):
        if not _is_own(linear.initializer) or not (linear.bias is None or _is_own(linear.bias)):
            raise _RefusedError(f"the weight {linear.name} is used elsewhere too")


def _is_own(value: ir.Value) -> bool:
    return value.is_initializer() and len(value.uses()) == 1


def _given(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index]
    if value is None:
        raise _RefusedError(f"{node.op_type} lacks an operand")
    return value


def _linear(matmul: ir.Node) -> Linear:
    linear = find_linear(matmul)
    if linear is None:
        raise ValueError(f"{matmul.name}: not a linear layer any more")
    return linear
