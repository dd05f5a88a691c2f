"""A shortcut through the exporter's decomposition, which traces the whole graph a second time.

A model's graph holds next to nothing to decompose: casts, most of them to the type that a value
has already, what changes no value, other names of operators, and checks. They are rewritten, which
is several times cheaper; a graph with anything else goes the exporter's own way as it came.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from optc.importer.tracing.known_constants import compute_known, has_known

_aten = torch.ops.aten
_CASTS = (
    _aten.to.dtype,
    _aten.to.dtype_layout,
    _aten.to.device,
    _aten.type_as.default,
)
_CHECKS = (_aten._assert_scalar.default, _aten._assert_tensor_metadata.default)
#: What gives the values of its operand, in a graph where nothing writes into values.
_SAME = (_aten.contiguous.default, _aten.detach_.default, _aten.lift_fresh_copy.default)
#: Operators by the other names that PyTorch has for them.
_RENAMED = {
    _aten.__and__.Tensor: _aten.bitwise_and.Tensor,
    _aten.__or__.Tensor: _aten.bitwise_or.Tensor,
    _aten.min.other: _aten.minimum.default,
    _aten.max.other: _aten.maximum.default,
}
#: Composites that the exporter takes as they are: its own decomposition leaves all of them but
#: reshape, of which it makes a view.
_TAKEN = (
    _aten.conv1d.default,
    _aten.conv2d.default,
    _aten.group_norm.default,
    _aten.layer_norm.default,
    _aten.linear.default,
    _aten.log_softmax.int,
    _aten.matmul.default,
    _aten.reshape.default,
    _aten.scaled_dot_product_attention.default,
    _aten.softmax.int,
    _aten.sym_size.int,
    _aten.upsample_nearest2d.vec,
    _aten.where.ScalarOther,
)
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd

Table = Mapping[Any, Callable[..., Any]]


@contextmanager
def light_decomposition() -> Iterator[None]:
    """While it lasts, programs that need no second trace to be decomposed are spared it."""
    full = ExportedProgram.run_decompositions

    def light(program: ExportedProgram, table: Any = None, **options: Any) -> ExportedProgram:
        program = _with_known(program)
        rewritten = _rewritten(program, table or {})
        return full(program, table, **options) if rewritten is None else rewritten

    ExportedProgram.run_decompositions = light
    try:
        yield
    finally:
        ExportedProgram.run_decompositions = full


def _with_known(program: ExportedProgram) -> ExportedProgram:
    """A program in which known numbers are computed: itself if it has none of their functions."""
    if not has_known(program.graph):
        return program
    found = _with_graph(program, _copied(program.graph))
    compute_known(found)
    return found


def _rewritten(program: ExportedProgram, table: Table) -> ExportedProgram | None:
    """A program with a graph of its own, decomposed; None if that takes a second trace."""
    graph = _copied(program.graph)
    return _with_graph(program, graph) if decompose_in_place(graph, table) else None


def _copied(graph: Graph) -> Graph:
    found = copy.deepcopy(graph)
    for given, node in zip(graph.nodes, found.nodes, strict=True):
        node.name = given.name  # as the signature has it: a copy avoids names of Python's own
    return found


def _with_graph(program: ExportedProgram, graph: Graph) -> ExportedProgram:
    found = copy.copy(program)
    found._graph_module = GraphModule(program.graph_module, graph)
    found._graph_module.meta.update(program.graph_module.meta)
    return found


def decompose_in_place(graph: Graph, table: Table) -> bool:
    """Rewrite casts, what changes no value and other names, and drop checks and what is unused.

    Returns:
        False if operators remain that ``table`` or PyTorch itself would decompose, that hold
        graphs, or that write into their operands.
    """
    if any(_writes(node) for node in graph.nodes):
        return False  # what is written to has to stay apart from what it was copied from
    for node in list(graph.nodes):
        if node.target in _CHECKS:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    for node in list(graph.nodes):
        if not any(user.op == "output" for user in node.users):
            _rewrite(graph, node)
    return all(_is_final(node, table) for node in graph.nodes)


def _writes(node: Node) -> bool:
    operator = node.target
    mutable = isinstance(operator, OpOverload) and operator._schema.is_mutable
    return mutable and operator not in _SAME


def _rewrite(graph: Graph, node: Node) -> None:
    if node.target in _CASTS:
        _replace_cast(graph, node)
    elif node.target in _SAME or _is_dropout_of_none(node):
        _take_operand(graph, node)
    elif node.target in _RENAMED:
        node.target = _RENAMED[node.target]
    elif node.target == _aten.chunk.default:
        _split(node)


def _replace_cast(graph: Graph, node: Node) -> None:
    """``to`` becomes nothing, or an explicit copy where it changes the type."""
    source = node.args[0]
    assert isinstance(source, Node)
    dtype = node.meta["val"].dtype
    if source.meta["val"].dtype == dtype:
        _take_operand(graph, node)
        return
    with graph.inserting_before(node):
        cast = graph.call_function(_aten._to_copy.default, (source,), {"dtype": dtype})
    cast.meta = node.meta
    node.replace_all_uses_with(cast)
    graph.erase_node(node)


def _is_dropout_of_none(node: Node) -> bool:
    """True for a dropout of a model that is not trained."""
    return node.target == _aten.dropout.default and node.args[2:] == (False,)


def _take_operand(graph: Graph, node: Node) -> None:
    source = node.args[0]
    assert isinstance(source, Node)
    node.replace_all_uses_with(source)
    graph.erase_node(node)


def _split(node: Node) -> None:
    """``chunk`` becomes a split by the size of a chunk, if that is known."""
    source, chunks, *axis = node.args
    assert isinstance(source, Node)
    assert isinstance(chunks, int)
    size = source.meta["val"].shape[axis[0] if axis else 0]
    if isinstance(size, int) and size:
        node.target = _aten.split.Tensor
        node.args = (source, -(-size // chunks), *axis)


def _is_final(node: Node, table: Table) -> bool:
    operator = node.target
    if isinstance(operator, HigherOrderOperator):
        return False
    if node.op != "call_function" or not isinstance(operator, OpOverload):
        return True
    if operator in table or _writes(node):
        return False
    return operator in _TAKEN or not operator.has_kernel_for_dispatch_key(_COMPOSITE)
