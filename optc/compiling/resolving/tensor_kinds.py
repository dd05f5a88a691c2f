"""The bytes of a model's weights by their use, told by dataflow: embedding, projections, head."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import onnx_ir as ir

from optc.ir.weights import LazyWeight

#: In the order of the data's way through a model; the last one is whatever nothing else is.
KINDS = (
    "embedding",
    "embedding and head",
    "attention inputs",
    "attention output",
    "feed-forward",
    "head",
    "norms, biases and others",
)
_EMBEDDING, _TIED, _INPUTS, _OUTPUT, _FEED_FORWARD, _HEAD, _REST = KINDS


def tensor_kinds(model: ir.Model) -> list[dict[str, Any]]:
    """Bytes of the initializers of a model in any form, by kind.

    Of each node that multiplies by constants the largest constant is its weight, the others are its
    scales, zero points and bias. A projection is an attention's input or output where nothing but
    nodes without weights lies between them.

    Returns:
        JSON values: ``{kind, tensors, bytes, scale_bytes}`` of each kind that there is; ``tensors``
        counts weights, ``bytes`` includes ``scale_bytes``.
    """
    weighted = {node: found for node in model.graph if (found := list(_matrices(node)))}
    kinds = _kinds(model, weighted)
    weights: dict[object, str] = {}
    beside: dict[object, str] = {}
    for node, found in weighted.items():
        largest = _stored(max(found, key=_bytes))
        before = weights.get(largest, kinds[node])
        weights[largest] = _TIED if {before, kinds[node]} == {_EMBEDDING, _HEAD} else before
        beside |= {_stored(value): weights[largest] for value in found}
    totals: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for stored, size in {_stored(v): _bytes(v) for v in model.graph.initializers.values()}.items():
        kind = weights.get(stored) or beside.get(stored, _REST)
        total = totals[kind]
        total[0] += stored in weights or kind == _REST
        total[1] += size
        total[2] += size if stored in beside and stored not in weights else 0
    names = ("tensors", "bytes", "scale_bytes")
    return [
        {"kind": kind, **dict(zip(names, totals[kind], strict=True))}
        for kind in KINDS
        if kind in totals
    ]


def _kinds(model: ir.Model, weighted: Iterable[ir.Node]) -> dict[ir.Node, str]:
    """The kind of each node with a weight."""
    kinds = dict.fromkeys(weighted, _FEED_FORWARD)
    for node in model.graph:
        if "Attention" in node.op_type:
            kinds |= dict.fromkeys(_weighted_above(node, kinds.keys()), _INPUTS)
            kinds |= dict.fromkeys(_weighted_below(node, kinds.keys()), _OUTPUT)
    head = _weighted_above(model.graph.outputs[0].producer(), kinds.keys(), itself=True)
    kinds |= dict.fromkeys(head, _HEAD)
    tokens = model.graph.inputs[0]
    kinds |= {node: _EMBEDDING for node in kinds if tokens in node.inputs}
    return kinds


def _weighted_above(
    node: ir.Node | None, weighted: Iterable[ir.Node], *, itself: bool = False
) -> list[ir.Node]:
    """The nodes with weights that a node's operands come from, through nodes without."""
    stops, found, seen = set(weighted), list[ir.Node](), set[ir.Node]()
    ahead = [] if node is None else [node] if itself else _producers(node)
    while ahead:
        one = ahead.pop()
        if one in seen:
            continue
        seen.add(one)
        if one in stops:
            found.append(one)
        else:
            ahead += _producers(one)
    return found


def _weighted_below(node: ir.Node, weighted: Iterable[ir.Node]) -> list[ir.Node]:
    """The nodes with weights that a node's first result goes to, through nodes without."""
    stops, found, seen = set(weighted), list[ir.Node](), set[ir.Node]()
    ahead = list(node.outputs[0].consumers())
    while ahead:
        one = ahead.pop()
        if one in seen:
            continue
        seen.add(one)
        if one in stops:
            found.append(one)
        else:
            ahead += [after for output in one.outputs for after in output.consumers()]
    return found


def _producers(node: ir.Node) -> list[ir.Node]:
    made = (value.producer() for value in node.inputs if value is not None)
    return [one for one in made if one is not None]


def _matrices(node: ir.Node) -> Iterator[ir.Value]:
    """Constants of a node that computes, if one of them is a matrix."""
    if _is_computed(node):
        found = list(_constants(node))
        if any(len([d for d in v.shape or () if d != 1]) > 1 for v in found):
            yield from found


def _constants(node: ir.Node) -> Iterator[ir.Value]:
    """Initializers that a node reads, itself or through nodes that only unpack them."""
    for value in node.inputs:
        if value is None:
            continue
        producer = value.producer()
        if value.const_value is not None and value.is_initializer():
            yield value
        elif producer is not None and not _is_computed(producer):
            yield from _constants(producer)


def _is_computed(node: ir.Node) -> bool:
    """True if a node's result depends on an input of the graph."""
    ahead, seen = [node], set[ir.Node]()
    while ahead:
        one = ahead.pop()
        for value in one.inputs:
            if value is None or value.is_initializer():
                continue
            producer = value.producer()
            if producer is None:
                return True
            if producer not in seen:
                seen.add(producer)
                ahead.append(producer)
    return False


def _stored(value: ir.Value) -> object:
    """Equal for initializers that are stored once: a tied head and embedding read the same rows."""
    tensor = value.const_value
    return tensor.read_rows if isinstance(tensor, LazyWeight) else value


def _bytes(value: ir.Value) -> int:
    return 0 if value.const_value is None else int(value.const_value.nbytes)
