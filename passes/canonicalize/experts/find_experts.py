"""`find-experts`: matmuls by experts as captured become those of the normal form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.expert_rows import expert_rows, expert_vector
from optc.ir.functions import DOMAIN, is_op, make_node
from optc.ir.graph import add_initializer, constant_ints, int_initializer, remove_unused
from optc.ir.weights import LazyWeight, as_lazy
from optc.passes.canonicalize.dataflow import dims, emit, insert, miss, operand, rank, substitute
from optc.pipeline.base import Pass, PassReport


@dataclass(frozen=True)
class FindExperts(Pass):
    """``optc::ExpertMatMul`` and ``optc::CombineExperts`` as captured.

    1. The weight [E, N, K], or [E, K, N] where ``transposed``, becomes rows [E * N, K], read from
       the checkpoint as they are needed; the bias [E, N] a vector.
    2. Gate and up that lie interleaved, so that every second column of the result is read, each
       half by a strided ``Slice``: rows of weight and bias are put gate first, and a ``Split``
       takes the place of the slices.
    3. Indices of experts become int32.
    """

    name: ClassVar[str] = "find-experts"

    def run(self, model: ir.Model) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        narrowed: dict[ir.Value, ir.Value] = {}
        for node in list(model.graph):
            if is_op(node, "CombineExperts", domain=DOMAIN) and not node.overload:
                _combine(model, node)
            elif is_op(node, "ExpertMatMul", domain=DOMAIN) and rank(node.inputs[2]) == 3:
                _matmul(model, node, narrowed, report)
        remove_unused(model)
        return report


def _combine(model: ir.Model, node: ir.Node) -> None:
    new = make_node(model, "CombineExperts", node.inputs, name=node.name)
    _put(node, new)


def _matmul(
    model: ir.Model, node: ir.Node, narrowed: dict[ir.Value, ir.Value], report: PassReport
) -> None:
    stack = operand(node, 2)
    if stack.const_value is None:
        miss(report, node, "its weight is computed, not a constant")
        return
    slices = _strided_halves(node.outputs[0])
    transposed = bool(node.attributes.get_int("transposed", 0))
    weight, bias = as_lazy(stack.const_value), _bias(model.graph, node, bool(slices))
    rows = expert_rows(weight, transposed=transposed, interleaved=bool(slices))
    new = make_node(
        model,
        "ExpertMatMul",
        [operand(node, 0), _int32(node, narrowed), _renamed(model.graph, stack, rows), bias],
        {"num_experts": weight.rows_shape[0], "spread": node.attributes.get_int("spread", 0)},
        name=node.name,
    )
    _put(node, new)
    for value in (stack, *node.inputs[3:]):
        _forget(model.graph, value)
    if slices:
        _split_halves(model.graph, new, slices)
    report.add("gate and up interleaved" if slices else "matmul by experts")


def _put(node: ir.Node, new: ir.Node) -> None:
    """``new`` in the place of ``node``, of the same type and shape."""
    result, old = new.outputs[0], node.outputs[0]
    result.type, result.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(dims(old))
    insert(node, new)
    substitute(old, result)
    if node.graph is not None:
        node.graph.remove(node, safe=True)


def _int32(node: ir.Node, narrowed: dict[ir.Value, ir.Value]) -> ir.Value:
    """The indices of experts as int32, one Cast for all who read them."""
    index = operand(node, 1)
    if index not in narrowed:
        cast = emit(node, "Cast", [index], index, {"to": int(ir.DataType.INT32)})
        cast.type = ir.TensorType(ir.DataType.INT32)
        narrowed[index] = cast
    return narrowed[index]


def _bias(graph: ir.Graph, node: ir.Node, interleaved: bool) -> ir.Value | None:
    value = node.inputs[3] if len(node.inputs) > 3 else None
    if value is None or value.const_value is None:
        return None
    return _renamed(
        graph, value, expert_vector(as_lazy(value.const_value), interleaved=interleaved)
    )


def _renamed(graph: ir.Graph, source: ir.Value, weight: LazyWeight) -> ir.Value:
    return add_initializer(graph, weight, f"{source.name}.rows")


def _forget(graph: ir.Graph, source: ir.Value | None) -> None:
    """Drop a weight that nothing reads any more; what was made of it takes over its name."""
    if source is None or source.uses():
        return
    name = str(source.name)
    del graph.initializers[name]
    made = graph.initializers.get(f"{name}.rows")
    if made is not None:
        made.name = name


def _strided_halves(value: ir.Value) -> list[ir.Value]:
    """The even and the odd columns of ``value``, if two Slices read these and nothing else does."""
    found: dict[int, ir.Value] = {}
    for node, _ in value.uses():
        start = _every_second(node)
        if start is None or start in found:
            return []
        found[start] = node.outputs[0]
    return [found[0], found[1]] if found.keys() == {0, 1} else []


def _every_second(node: ir.Node) -> int | None:
    """Where a Slice of every second element of the last axis starts; None for other nodes."""
    if not is_op(node, "Slice") or len(node.inputs) != 5:
        return None
    shape = dims(operand(node, 0))
    starts, stops, axes, steps = (constant_ints(value) for value in node.inputs[1:])
    if not starts or not stops or axes not in ([-1], [len(shape) - 1]) or steps != [2]:
        return None
    whole = isinstance(shape[-1], int) and stops[0] >= shape[-1] and shape[-1] % 2 == 0
    return starts[0] if whole else None


def _split_halves(graph: ir.Graph, node: ir.Node, slices: list[ir.Value]) -> None:
    """A Split of the result of ``node`` in the place of the two slices."""
    sizes = [int(dims(value)[-1] or 0) for value in slices]
    split = ir.Node(
        "",
        "Split",
        [node.outputs[0], int_initializer(graph, sizes, f"{node.name}.halves")],
        ir.convenience.convert_attributes({"axis": -1}),
        outputs=[ir.Value(type=value.type, shape=value.shape) for value in slices],
    )
    graph.insert_after(node, [split])
    for old, new in zip(slices, split.outputs, strict=True):
        substitute(old, new)
