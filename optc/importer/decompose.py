"""A shortcut through the exporter's decomposition, which traces the whole graph a second time.

A decoder's graph holds next to nothing to decompose: casts, most of them to the type that a value
has already, and checks. They are rewritten in place, which is several times cheaper; a graph with
anything else goes the exporter's own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node

_aten = torch.ops.aten
_CASTS = (_aten.to.dtype, _aten.to.device)
_CHECKS = (_aten._assert_scalar.default, _aten._assert_tensor_metadata.default)
#: Composites that the exporter takes as they are.
_TAKEN = (_aten.linear.default, _aten.reshape.default, _aten.sym_size.int)
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd

Table = Mapping[Any, Callable[..., Any]]


@contextmanager
def light_decomposition() -> Iterator[None]:
    """While it lasts, programs that need no second trace to be decomposed are spared it."""
    full = ExportedProgram.run_decompositions

    def light(program: ExportedProgram, table: Any = None, **options: Any) -> ExportedProgram:
        return (
            program
            if decompose_in_place(program.graph, table or {})
            else full(program, table, **options)
        )

    ExportedProgram.run_decompositions = light
    try:
        yield
    finally:
        ExportedProgram.run_decompositions = full


def decompose_in_place(graph: Graph, table: Table) -> bool:
    """Rewrite casts and drop checks and what is unused; false, with ``graph`` still meaning the
    same, if operators remain that ``table`` or PyTorch itself would decompose, or that write
    into their operands."""
    for node in list(graph.nodes):
        if node.target in _CHECKS:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    for node in list(graph.nodes):
        if node.target in _CASTS and not any(user.op == "output" for user in node.users):
            _replace_cast(graph, node)
    return all(_is_final(node, table) for node in graph.nodes)


def _replace_cast(graph: Graph, node: Node) -> None:
    """``to`` becomes nothing, or an explicit copy where it changes the type."""
    source = node.args[0]
    assert isinstance(source, Node)
    dtype = node.meta["val"].dtype
    if source.meta["val"].dtype == dtype:
        node.replace_all_uses_with(source)
    else:
        with graph.inserting_before(node):
            copy = graph.call_function(_aten._to_copy.default, (source,), {"dtype": dtype})
        copy.meta = node.meta
        node.replace_all_uses_with(copy)
    graph.erase_node(node)


def _is_final(node: Node, table: Table) -> bool:
    operator = node.target
    if node.op != "call_function" or not isinstance(operator, OpOverload):
        return True
    if operator in table or operator._schema.is_mutable:
        return False
    return operator in _TAKEN or not operator.has_kernel_for_dispatch_key(_COMPOSITE)
