"""Functions that ONNX has not are computed while a model is exported, where what they take is
known: a quantile of the normal distribution, say, to which a model compares."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node, map_arg

_aten = torch.ops.aten
#: Functions without an operator of ONNX.
_FUNCTIONS = (_aten.erfinv.default,)


def has_known(graph: Graph) -> bool:
    """True if a graph calls one of `_FUNCTIONS`."""
    return any(node.target in _FUNCTIONS for node in graph.nodes)


def compute_known(program: ExportedProgram) -> None:
    """Replace each of `_FUNCTIONS` of known tensors, which gives one number, by that number."""
    constants = _constants(program)
    for node in [node for node in program.graph.nodes if node.target in _FUNCTIONS]:
        with unset_fake_temporarily():
            value = _value(node, constants)
            number = value.item() if value is not None and value.ndim == 0 else None
        if number is None:
            continue
        with program.graph.inserting_before(node):
            options = {"dtype": node.meta["val"].dtype}
            known = program.graph.call_function(_aten.full.default, ([], number), options)
        known.meta = node.meta
        node.replace_all_uses_with(known)
        program.graph.erase_node(node)


def _constants(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The constant tensors of a program by the names of the nodes that stand for them."""
    return {
        spec.arg.name: program.constants[spec.target]
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.CONSTANT_TENSOR and spec.target is not None
    }


def _value(node: Node, constants: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """The value of a node that is made of ``constants`` alone; None of any other."""
    if node.op == "placeholder":
        return constants.get(node.name)
    if node.op != "call_function" or not callable(node.target):
        return None
    operands = {one: _value(one, constants) for one in node.all_input_nodes}
    if not operands or any(value is None for value in operands.values()):
        return None
    args: Any = map_arg(node.args, operands.__getitem__)
    options: Any = map_arg(node.kwargs, operands.__getitem__)
    return node.target(*args, **options)
