"""Run a model in any form on ONNX Runtime, some nodes at a time, and see the values within it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from optc.ir.graph import constant
from optc.proof.reference.submodel import Array, extract, open_session, run_session
from optc.system.scratch import Scratch

#: Weights of a piece, counted in float32: what ONNX Runtime may make of them at once.
PIECE_BYTES = 256 << 20

#: Gives the array of a graph input by name.
Feed = Callable[[str], Array]


def run_model(
    model: ir.Model,
    feed: Feed,
    wanted: Collection[ir.Value],
    take: Callable[[ir.Value, Array], None],
    threads: int,
) -> None:
    """Run what ``wanted`` values need, and hand each over once it is there.

    Memory holds the weights of a piece (256 MiB in float32, or one node's) and the values that
    later pieces read. Weights are read from their lazy form and lie in a temporary file meanwhile.

    Args:
        model: Any form; it is not changed.
        feed: Gives the inputs that are needed.
        wanted: Values of the graph that nodes make.
        take: Called with each of them and its array.
        threads: Threads of ONNX Runtime.
    """
    nodes = _needed(model.graph, wanted)
    pieces = list(_pieces(nodes))
    made_by = {value for node in nodes for value in node.outputs}
    last_read = {v: i for i, piece in enumerate(pieces) for v in _reads(piece, made_by)}
    inputs = set(model.graph.inputs)
    live: dict[ir.Value, Array] = {}
    for index, piece in enumerate(pieces):
        made = {value for node in piece for value in node.outputs}
        given = [v for v in _reads(piece, made_by | inputs) if v not in made]
        results = [v for v in made if v in wanted or last_read.get(v, -1) > index]
        feeds = {str(v.name): feed(str(v.name)) if v in inputs else live[v] for v in given}
        for value, array in zip(
            results, _run_piece(model, piece, given, results, feeds, threads), strict=True
        ):
            if value in wanted:
                take(value, array)
            live[value] = array
        live = {v: array for v, array in live.items() if last_read.get(v, -1) > index}


def cut_at(model: ir.Model, names: Collection[str]) -> ir.Model:
    """A copy in which nothing reads the values of these names, but inputs ``NAME.given``.

    What each node makes of exact inputs can then be seen, apart from all errors before it.
    """
    cut = model.clone()
    for node in list(cut.graph):
        for value in node.outputs:
            if value.name not in names or not value.uses():
                continue
            given = ir.Value(name=given_name(str(value.name)), type=value.type, shape=value.shape)
            for user, position in [(use.node, use.idx) for use in value.uses()]:
                user.replace_input_with(position, given)
            cut.graph.inputs.append(given)
    return cut


def given_name(name: str) -> str:
    """The input that stands for a value where a model is cut (`cut_at`)."""
    return f"{name}.given"


def _needed(graph: ir.Graph, wanted: Iterable[ir.Value]) -> list[ir.Node]:
    """Nodes that the values depend on and that depend on an input, in topological order."""
    live = set(graph.inputs)
    moving: list[ir.Node] = []
    for node in graph:
        if any(value in live for value in node.inputs):
            moving.append(node)
            live.update(node.outputs)
    needed = set(wanted)
    kept: list[ir.Node] = []
    for node in reversed(moving):
        if any(value in needed for value in node.outputs):
            kept.append(node)
            needed.update(v for v in node.inputs if v is not None)
    return kept[::-1]


def _pieces(nodes: Sequence[ir.Node]) -> Iterable[list[ir.Node]]:
    """Runs of nodes with about `PIECE_BYTES` of weights, each ending in a float32 value."""
    piece: list[ir.Node] = []
    size = 0
    for node in nodes:
        own = sum(4 * tensor.size for v in node.inputs if (tensor := constant(v)) is not None)
        if piece and size + own > PIECE_BYTES and _is_float(piece[-1].outputs[0]):
            yield piece
            piece, size = [], 0
        piece.append(node)
        size += own
    if piece:
        yield piece


def _is_float(value: ir.Value) -> bool:
    return value.dtype in (None, ir.DataType.FLOAT)


def _reads(nodes: Iterable[ir.Node], known: Collection[ir.Value]) -> list[ir.Value]:
    values = (v for node in nodes for v in node.inputs if v is not None and v in known)
    return list(dict.fromkeys(values))


def _run_piece(
    model: ir.Model,
    nodes: Sequence[ir.Node],
    given: Sequence[ir.Value],
    results: Sequence[ir.Value],
    feeds: dict[str, Array],
    threads: int,
) -> list[Array]:
    part = extract(model, nodes, given, results)
    graph = part.model.graph
    inputs = {value.name: value for value in graph.inputs}
    for weight in part.weights:
        copy = inputs[weight.name]
        graph.inputs.remove(copy)
        copy.const_value = weight.const_value
        graph.register_initializer(copy)
    contiguous = {name: np.ascontiguousarray(array) for name, array in feeds.items()}
    with Scratch("bisect") as folder:
        path = Path(folder) / "part.onnx"
        ir.save(part.model, path, external_data="weights")
        return run_session(open_session(str(path), threads), contiguous)
