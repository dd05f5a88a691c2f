"""The part of a graph that lies between a projection and the heads that attention reads.

It only moves values, turns pairs of them by angles and scales them, so that it is linear in the
operands [B, S, W] that its paths come from: one, or two where heads join columns of their own and
columns that all of them share.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import is_constant
from optc.passes.canonicalize.dataflow import dims, rank
from optc.passes.canonicalize.heads import SWAP, heads_of

#: Operators that only move values.
MOVES = frozenset(
    {
        *("Reshape", "Transpose", "Slice", "Split", "Concat", "Unsqueeze", "Squeeze", "Expand"),
        *(
            "Gather",
            "GatherND",
            "ScatterND",
            "ScatterElements",
            "Identity",
            "Tile",
            "Cast",
            "Shape",
        ),
        *("Range", "ConstantOfShape"),
    }
)
_SUMS = frozenset({"Add", "Sub"})
_PRODUCTS = frozenset({"Mul", "Div"})
TRIG = ("Cos", "Sin")
_MOST_SOURCES = 2


@dataclass(frozen=True)
class Dependence:
    """The values that follow from positions alone, and those that follow from tokens.

    Attributes:
        positions: The graph's input.
        of_positions: Values that depend on positions and on no token.
        of_tokens: Values that depend on tokens, other than on how many there are.
        of_places: Values that depend on neither, but count tokens.
    """

    positions: ir.Value
    of_positions: frozenset[ir.Value]
    of_tokens: frozenset[ir.Value]
    of_places: frozenset[ir.Value] = frozenset()


def dependence(graph: ir.Graph) -> Dependence:
    """Follow the inputs of an imported graph: ids, positions, and what other inputs tokens have."""
    tokens, positions, *others = graph.inputs
    of_tokens, of_positions, of_places = {tokens, *others}, {positions}, set[ir.Value]()
    for node in graph:
        read = {value for value in node.inputs if value is not None}
        if is_op(node, "Shape"):
            continue
        if read & of_tokens:
            of_tokens.update(node.outputs)
        elif read & of_positions:
            of_positions.update(node.outputs)
        elif read & of_places or is_op(node, "Range"):
            of_places.update(node.outputs)
    every = (frozenset(values) for values in (of_positions, of_tokens, of_places))
    return Dependence(positions, *every)


@dataclass
class Region:
    """The part of a graph between an operand and ``result``.

    Attributes:
        result: The value that is read.
        sources: Its operands [B, S, W], those that all paths come from.
        nodes: Those in between.
        of_positions: Values of positions alone that they read.
        moving: Values of tokens in between.
        reason: Why it is no such part; empty if it is one.
    """

    result: ir.Value
    sources: list[ir.Value] = field(default_factory=list)
    nodes: set[ir.Node] = field(default_factory=set)
    of_positions: list[ir.Value] = field(default_factory=list)
    moving: set[ir.Value] = field(default_factory=set)
    reason: str = ""

    @property
    def is_plain(self) -> bool:
        """True if heads are only split off columns side by side: nothing is to be found."""
        moved = [node for node in self.nodes if any(v in self.moving for v in node.outputs)]
        shapes = {h for n in moved for v in (n.inputs[0], *n.outputs) for h in _heads(v)}
        one = len(self.sources) == 1 and not self.of_positions and len(shapes) < 2
        return one and all(map(_splits, moved))


def _heads(value: ir.Value | None) -> list[tuple[int, int]]:
    """Number and size of heads of a value of four axes."""
    heads = heads_of(value) if value is not None and rank(value) == 4 else None
    return [] if heads is None else [(heads.count, heads.size)]


def _splits(node: ir.Node) -> bool:
    """True if ``node`` cuts columns, splits off heads, swaps them with tokens, or undoes that."""
    source, result = node.inputs[0], node.outputs[0]
    if source is None:
        return False
    if is_op(node, "Slice", "Split"):
        return rank(source) == 3
    if is_op(node, "Transpose"):
        return rank(source) == 4 and [*node.attributes["perm"].as_ints()] == SWAP
    split = source if rank(source) == 4 else result
    heads = heads_of(split) if is_op(node, "Reshape") else None
    folded = result if split is source else source
    if heads is None or heads.tokens_last:
        return False
    return dims(folded)[2:] == [heads.count * heads.size]


def region_of(result: ir.Value, depends: Dependence) -> Region:
    """Walk back from ``result`` to what is no move, rotation or scaling any more."""
    region = Region(result)
    seen: set[ir.Value] = set()
    stack = [result]
    while stack and not region.reason:
        value = stack.pop()
        if value in seen or is_constant(value):
            continue
        seen.add(value)
        if value in depends.of_positions:
            region.of_positions.append(value)
            continue
        node = value.producer()
        if node is None or not _inside(node, value, depends):
            _bound(region, value)
            continue
        region.nodes.add(node)
        if value in depends.of_tokens:
            region.moving.add(value)
        if not is_op(node, "Shape"):
            stack.extend(v for v in node.inputs if v is not None)
    if not region.sources and not region.reason:
        region.reason = "it comes from no projection"
    return region


def _bound(region: Region, value: ir.Value) -> None:
    """``value`` is an operand of the region."""
    if rank(value) != 3 or not isinstance(dims(value)[-1], int):
        region.reason = f"it comes from a value of shape {dims(value)}"
    elif value not in region.sources:
        region.sources.append(value)
    if len(region.sources) > _MOST_SOURCES:
        region.reason = "it comes from several projections"


def _inside(node: ir.Node, value: ir.Value, depends: Dependence) -> bool:
    """True if ``node`` is linear in one operand and moves, adds or scales; or works on sizes."""
    if value not in depends.of_tokens or (not node.domain and node.op_type in MOVES):
        return True
    if node.domain:
        return False
    if node.op_type == "Neg":
        return True
    of_tokens = [value in depends.of_tokens for value in node.inputs]
    if node.op_type in _SUMS:
        return all(of_tokens)
    if node.op_type in _PRODUCTS:
        other = node.inputs[1] if of_tokens[0] else node.inputs[0]
        weight = other is not None and is_constant(other) and _size(other) > 1
        # probes have one token, of which such a factor shows the first place alone
        weight = weight or other in depends.of_places
        return sum(of_tokens) == 1 and of_tokens[0] >= (node.op_type == "Div") and not weight
    return False


def _size(value: ir.Value) -> int:
    size = 1
    for dim in dims(value):
        size *= dim if isinstance(dim, int) else 2
    return size
