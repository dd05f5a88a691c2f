"""`find-experts`: matmuls by experts as captured become those of the normal form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.expert_rows import expert_rows, expert_vector
from optc.ir.functions import DOMAIN, is_op, make_node
from optc.ir.graph import add_initializer, constant_ints, int_initializer, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.weights import LazyWeight, as_lazy
from optc.passes.canonicalize.dataflow import dims, emit, insert, miss, operand, rank, substitute


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
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        work = _Rewriter(model)
        for node in list(model.graph):
            if is_op(node, "CombineExperts", domain=DOMAIN) and not node.overload:
                _put(node, make_node(model, "CombineExperts", node.inputs, name=node.name))
            elif is_op(node, "ExpertMatMul", domain=DOMAIN) and rank(node.inputs[2]) == 3:
                work.matmul(node)
        work.take_over_names()
        remove_unused(model)
        return work.report


class _Rewriter:
    """The state of one run: what several nodes read is made once."""

    def __init__(self, model: ir.Model) -> None:
        self.report = PassReport()
        self._model = model
        self._indices: dict[ir.Value, ir.Value] = {}
        self._rows: dict[tuple[ir.Value, bool], ir.Value] = {}

    def matmul(self, node: ir.Node) -> None:
        """Put one matmul in the normal form."""
        stack, bias = operand(node, 2), [*node.inputs, None][3]
        if stack.const_value is None:
            miss(self.report, node, "its weight is computed, not a constant")
            return
        halves = _strided_halves(node.outputs[0])
        transposed = bool(node.attributes.get_int("transposed", 0))

        def stacked(tensor: ir.TensorProtocol) -> LazyWeight:
            weight = as_lazy(tensor)
            return expert_rows(weight, transposed=transposed, interleaved=bool(halves))

        def vector(tensor: ir.TensorProtocol) -> LazyWeight:
            return expert_vector(as_lazy(tensor), interleaved=bool(halves))

        new = make_node(
            self._model,
            "ExpertMatMul",
            [
                *(operand(node, 0), self._index(node)),
                *(self._made(stack, bool(halves), stacked), self._made(bias, bool(halves), vector)),
            ],
            {
                "num_experts": int(stack.const_value.shape.numpy()[0]),
                "spread": node.attributes.get_int("spread", 0),
            },
            name=node.name,
        )
        _put(node, new)
        if halves:
            _split_halves(self._model.graph, new, halves)
        self.report.add("gate and up interleaved" if halves else "matmul by experts")

    def take_over_names(self) -> None:
        """Drop the weights that nothing reads any more; what was made of them has their names."""
        initializers = self._model.graph.initializers
        for (source, _), made in self._rows.items():
            if not source.uses() and initializers.get(str(source.name)) is source:
                name = str(source.name)
                del initializers[name]
                made.name = name

    def _index(self, node: ir.Node) -> ir.Value:
        """The indices of experts as int32, one Cast for all who read them."""
        index = operand(node, 1)
        if index not in self._indices:
            cast = emit(node, "Cast", [index], index, {"to": int(ir.DataType.INT32)})
            cast.type = ir.TensorType(ir.DataType.INT32)
            self._indices[index] = cast
        return self._indices[index]

    def _made(
        self,
        source: ir.Value | None,
        interleaved: bool,
        make: Callable[[ir.TensorProtocol], LazyWeight],
    ) -> ir.Value | None:
        """The initializer that ``make`` makes of ``source``, if that is a constant."""
        if source is None or source.const_value is None:
            return None
        key = source, interleaved
        if key not in self._rows:
            weight = make(source.const_value)
            self._rows[key] = add_initializer(self._model.graph, weight, f"{source.name}.rows")
        return self._rows[key]


def _put(node: ir.Node, new: ir.Node) -> None:
    """``new`` in the place of ``node``, of the same type and shape."""
    result, old = new.outputs[0], node.outputs[0]
    result.type, result.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(dims(old))
    insert(node, new)
    substitute(old, result)
    if node.graph is not None:
        node.graph.remove(node, safe=True)


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
    """The start of a Slice of every second element of the last axis; None for other nodes."""
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
