"""Cut a dense-form language model at its decoder layers, by dataflow.

A value is a *cut* if every path from the embedded tokens to the logits goes through it; this is
found by counting paths, so that neither names nor the order of nodes matter. Values that do not
depend on the tokens (cos and sin, constants) are outside the stream: those computed from
positions are evaluated once and given to every block.

Some values skip layers: keys and values that later layers share, embeddings of every layer. An
edge to a node that is two mixers of tokens further or more (attentions, convolutions) is such a
skip, and no path. A skipping value is carried beside the cuts that it skips.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace

import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.functions import is_op
from optc.ir.graph import width

#: An edge to a node that is so many mixers further is no path.
_SKIP = 2
#: Operators that may stand between the head's MatMul and the logits: one logit needs only its own.
TAIL_OPS = frozenset({"Add", "Sub", "Mul", "Div", "Tanh", "Cast", "Identity"})


@dataclass(frozen=True)
class Block:
    """Nodes between two cuts, at most one mixer of tokens among them.

    Attributes:
        source: The cut it starts from, [B, S, D].
        result: The cut it ends in, [B, S, D].
        nodes: Its nodes in topological order; constants and values of positions excluded.
        carried: Values [B, S, ...] before it that it or a later block reads beside ``source``.
        passed: Those that later blocks read beside ``result``, the next block's ``carried``.
    """

    source: ir.Value
    result: ir.Value
    nodes: tuple[ir.Node, ...]
    carried: tuple[ir.Value, ...] = ()
    passed: tuple[ir.Value, ...] = ()

    @property
    def given(self) -> tuple[ir.Value, ...]:
        """The source, and what is carried beside it."""
        return (self.source, *self.carried)

    @property
    def gives(self) -> tuple[ir.Value, ...]:
        """The result, and what is passed on beside it."""
        return (self.result, *self.passed)


@dataclass(frozen=True)
class Partition:
    """A dense-form model in pieces.

    Attributes:
        embedding: Initializer [V, D].
        embedded: Output of the Gather on it, where the stream starts.
        tables: Initializers [V, ...] of the first block's ``given``, in order: the embedding, and
            those of other lookups of tokens.
        position_nodes: Nodes that compute ``shared`` from position_ids.
        shared: Values of positions that blocks read (cos, sin).
        blocks: The decoder layers; the last one ends in the head's input.
        head: The head's MatMul, with weight [D, V].
        tail_nodes: Element-wise nodes from the head's output to the logits.
    """

    embedding: ir.Value
    embedded: ir.Value
    tables: tuple[ir.Value, ...]
    position_nodes: tuple[ir.Node, ...]
    shared: tuple[ir.Value, ...]
    blocks: tuple[Block, ...]
    head: ir.Node
    tail_nodes: tuple[ir.Node, ...]


def partition(model: ir.Model) -> Partition:
    """Cut ``model``, in dense form, at its decoder layers.

    Raises:
        UnsupportedError: Tokens do not enter through lookups in tables alone, or the logits do not
            come from one MatMul on an initializer.
    """
    order = list(model.graph)
    logits = model.graph.outputs[0]
    head, tail = _head(logits)
    lookups = _lookups(model.graph)
    embedded, hidden = _embedded(lookups, head), head.inputs[0]
    stream = _reachable_from(lookups, order)
    cuts = _cuts(embedded, logits, [n for n in order if id(n) in stream])
    if hidden not in cuts or head.outputs[0] not in cuts:
        raise UnsupportedError(
            "not every path to the logits goes through this head",
            where=head.name or "MatMul",
            hint="the float32 reference needs one MatMul on the last hidden state",
        )
    blocks = _carrying(_blocks(cuts[: cuts.index(hidden) + 1], order, stream), stream, lookups)
    kept = {id(node) for block in blocks for node in block.nodes}
    inside = stream | {id(value.producer()) for value in lookups}
    outside = [n for n in order if id(n) not in inside and _depends_on_input(n)]
    shared = _read_by(outside, kept)
    tables = tuple(lookups[value] for value in blocks[0].given)
    return Partition(
        lookups[embedded], embedded, tables, tuple(outside), shared, blocks, head, tail
    )


def _lookups(graph: ir.Graph) -> dict[ir.Value, ir.Value]:
    """The table by what is looked up in it, for all that reads the tokens."""
    tokens = graph.inputs[0]
    gathers = [use.node for use in tokens.uses()]
    found = {n.outputs[0]: n.inputs[0] for n in gathers if n.op_type == "Gather"}
    tables = {v: t for v, t in found.items() if t is not None and t.is_initializer()}
    if not gathers or len(tables) < len(gathers):
        kinds = ", ".join(f"{n.op_type} {n.name}" for n in gathers) or "nothing"
        raise UnsupportedError(
            f"tokens must go through Gathers on embeddings alone, found {kinds}",
            where=tokens.name or "input_ids",
        )
    return tables


def _embedded(lookups: Iterable[ir.Value], head: ir.Node) -> ir.Value:
    """The looked up value that is as wide as the head's input; else the first."""
    hidden, every = head.inputs[0], list(lookups)
    size = None if hidden is None else width(hidden)
    return next((value for value in every if width(value) == size), every[0])


def _head(logits: ir.Value) -> tuple[ir.Node, tuple[ir.Node, ...]]:
    tail: list[ir.Node] = []
    value: ir.Value | None = logits
    while value is not None:
        node = value.producer()
        if node is None:
            break
        weight = node.inputs[1] if len(node.inputs) > 1 else None
        if node.op_type == "MatMul" and weight is not None and weight.is_initializer():
            return node, tuple(reversed(tail))
        if node.op_type not in TAIL_OPS or node.domain != "":
            break
        tail.append(node)
        value = next((v for v in node.inputs if v is not None and not is_constant(v)), None)
    raise UnsupportedError(
        "the logits must come from one MatMul on an initializer and element-wise operators",
        where=logits.name or "logits",
    )


def is_constant(value: ir.Value) -> bool:
    """True if the value depends on no input: an initializer, or computed from constants only."""
    if value.is_initializer():
        return True
    node = value.producer()
    return node is not None and not _depends_on_input(node)


def _depends_on_input(node: ir.Node) -> bool:
    stack, seen = [node], set[int]()
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        for value in current.inputs:
            if value is None or value.is_initializer():
                continue
            producer = value.producer()
            if producer is None:
                return True
            stack.append(producer)
    return False


def _reachable_from(values: Iterable[ir.Value], order: Iterable[ir.Node]) -> set[int]:
    """Ids of the nodes that depend on any of ``values``."""
    reached = {id(value) for value in values}
    nodes = set[int]()
    for node in order:
        if any(id(v) in reached for v in node.inputs):
            nodes.add(id(node))
            reached.update(id(v) for v in node.outputs)
    return nodes


def _cuts(source: ir.Value, sink: ir.Value, stream: list[ir.Node]) -> list[ir.Value]:
    """Values that every path from source to sink goes through, in path order."""
    depths = _mixer_depths(stream)

    def steps(node: ir.Node) -> list[ir.Value]:
        deep = depths[node.outputs[0]]
        return [v for v in node.inputs if v is not None and deep - depths.get(v, 0) < _SKIP]

    forward = {id(source): 1}
    for node in stream:
        count = sum(forward.get(id(v), 0) for v in steps(node))
        forward.update((id(v), count) for v in node.outputs)
    backward: dict[int, int] = {id(sink): 1}
    for node in reversed(stream):
        count = sum(backward.get(id(v), 0) for v in node.outputs)
        for value in steps(node):
            if id(value) in forward:
                backward[id(value)] = backward.get(id(value), 0) + count
    values = [source, *(v for node in stream for v in node.outputs)]
    total = forward[id(sink)]
    return [v for v in values if forward[id(v)] * backward.get(id(v), 0) == total]


def _mixer_depths(stream: list[ir.Node]) -> dict[ir.Value, int]:
    """The number of mixers on the longest way to each value of the stream."""
    depths: dict[ir.Value, int] = {}
    for node in stream:
        before = max((depths.get(v, 0) for v in node.inputs if v is not None), default=0)
        one_more = mixes_tokens(node) and not _feeds_a_mixer(node)
        depths.update(dict.fromkeys(node.outputs, before + one_more))
    return depths


def _feeds_a_mixer(convolution: ir.Node) -> bool:
    """True for a convolution of what another mixer of its own layer reads, such as the short ones
    before recurrences: nothing of another origin is added on the way."""
    if convolution.op_type != "CausalConv":
        return False
    inside = set(convolution.outputs)
    stack = list(convolution.outputs)
    while stack:
        for node in stack.pop().consumers():
            if mixes_tokens(node):
                return True
            others = [v for v in node.inputs if v is not None and v not in inside]
            if is_op(node, "Add") and not all(map(is_constant, others)):
                continue
            new = [value for value in node.outputs if value not in inside]
            inside.update(new)
            stack += new
    return False


def _blocks(cuts: list[ir.Value], order: list[ir.Node], stream: set[int]) -> tuple[Block, ...]:
    """Join the segments between neighbouring cuts until the next mixer would come in."""
    rank = {id(node): index for index, node in enumerate(order)}
    blocks: list[Block] = []
    source, nodes, has_mixer = cuts[0], list[ir.Node](), False
    left = set(stream)
    for low, high in itertools.pairwise(cuts):
        segment = _segment(low, high, left)
        left -= {id(node) for node in segment}
        mixer = any(mixes_tokens(node) for node in segment)
        if mixer and has_mixer:
            blocks.append(_block(source, low, nodes, rank))
            source, nodes, has_mixer = low, [], False
        nodes += segment
        has_mixer |= mixer
    blocks.append(_block(source, cuts[-1], nodes, rank))
    return tuple(blocks)


def _block(source: ir.Value, result: ir.Value, nodes: list[ir.Node], rank: dict[int, int]) -> Block:
    return Block(source, result, tuple(sorted(nodes, key=lambda n: rank[id(n)])))


def _carrying(
    blocks: tuple[Block, ...], stream: set[int], lookups: Container[ir.Value]
) -> tuple[Block, ...]:
    """The blocks with what each carries and passes on.

    Raises:
        UnsupportedError: A value that skips blocks has no row of numbers for each token.
    """
    found: list[Block] = []
    needed: dict[ir.Value, None] = {}
    for block in reversed(blocks):
        made = {value for node in block.nodes for value in node.outputs}
        passed = tuple(needed)
        reads = dict.fromkeys(v for node in block.nodes for v in node.inputs if v is not None)
        before = [v for v in reads if v in lookups or id(v.producer()) in stream]
        needed = dict.fromkeys(v for v in (*before, *passed) if v not in made)
        needed.pop(block.source, None)
        found.append(replace(block, carried=tuple(needed), passed=passed))
        for value in needed:
            if value.dtype not in (ir.DataType.FLOAT, None) or width(value) is None:
                raise UnsupportedError(
                    "a value that later layers read is no row of numbers of each token",
                    where=value.name or "",
                )
    return tuple(reversed(found))


def mixes_tokens(node: ir.Node) -> bool:
    """True if rows of the node's result depend on other tokens: attention of any kind, and
    convolutions."""
    return node.op_type in ("Attention", "LinearAttention", "CausalConv")


def _segment(low: ir.Value, high: ir.Value, left: set[int]) -> list[ir.Node]:
    """Nodes that ``high`` is made of, up to ``low`` and to those that are no longer ``left``."""
    found: dict[int, ir.Node] = {}
    stack = [high]
    while stack:
        value = stack.pop()
        node = value.producer()
        if value is low or node is None or id(node) not in left or id(node) in found:
            continue
        found[id(node)] = node
        stack.extend(v for v in node.inputs if v is not None)
    return list(found.values())


def _read_by(nodes: Iterable[ir.Node], readers: set[int]) -> tuple[ir.Value, ...]:
    """Outputs of ``nodes`` that one of ``readers`` reads."""
    outputs = (value for node in nodes for value in node.outputs)
    return tuple(v for v in outputs if any(id(use.node) in readers for use in v.uses()))
