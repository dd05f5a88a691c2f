"""`places-to-positions`: places of tokens that a model counts become the positions it is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.forms.decoder import CROSS
from optc.ir.functions import is_op
from optc.ir.graph import int_initializer, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dataflow import dims, emit, operand, rank, scalar, substitute, uses

_ELEMENT_WISE = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Floor", "Log", "Exp", "Sqrt", "Cast"),
    *("Neg", "Identity", "Clip", "Reciprocal"),
)
_BROADCAST = ("Mul", "Div", "Add", "Sub")


@dataclass(frozen=True)
class PlacesToPositions(Pass):
    """``Range`` over the tokens of a sequence, [S], that becomes a factor or a term of each token,
    [1, S, 1, …], by element-wise operators: these read the positions [B, S] instead, which say the
    same of an exported graph, and of a step of some tokens, too, where their places do not.
    """

    name: ClassVar[str] = "places-to-positions"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        inputs = {value.name: value for value in model.graph.inputs}
        positions = inputs.get("position_ids")
        # of a decoder with an encoder, `find-cross-attention` has found what counts its tokens
        encoded = any(str(name).startswith(CROSS) for name in inputs)
        if positions is None or rank(positions) != 2 or encoded:
            return report
        for node in [n for n in model.graph if _counts_tokens(n, positions)]:
            for end in [*_ends(node.outputs[0])]:
                _read_positions(model.graph, end, positions)
                report.add("factor of each token")
        remove_unused(model)
        return report


def _counts_tokens(node: ir.Node, positions: ir.Value) -> bool:
    """True for 0, 1, 2, … as many as there are tokens."""
    if not is_op(node, "Range") or isinstance(dims(positions)[1], int):
        return False
    start, _, step = (scalar(value) for value in node.inputs)
    return start == 0 and step == 1 and dims(node.outputs[0]) == [dims(positions)[1]]


def _ends(value: ir.Value) -> Iterator[ir.Node]:
    """The nodes that make [1, S, 1, …] of what element-wise operators make of ``value`` [S], for
    readers that have such a value of each sequence."""
    for node in uses(value):
        result = node.outputs[0]
        if is_op(node, *_ELEMENT_WISE):
            others = [v for v in node.inputs if v is not None and v is not value]
            if all(scalar(v) is not None for v in others):
                yield from _ends(result)
        elif _is_column(node, dims(value)[0]) and all(map(_has_sequences, uses(result))):
            yield node


def _is_column(node: ir.Node, tokens: int | str | None) -> bool:
    """True if ``node`` gives [1, S, 1, …]."""
    shape = dims(node.outputs[0]) if is_op(node, "Reshape", "Unsqueeze") else []
    return len(shape) > 1 and shape[:2] == [1, tokens] and all(size == 1 for size in shape[2:])


def _has_sequences(node: ir.Node) -> bool:
    """True if ``node`` gives a value of each sequence."""
    return is_op(node, "Expand", *_BROADCAST) and not isinstance(dims(node.outputs[0])[0], int)


def _read_positions(graph: ir.Graph, end: ir.Node, positions: ir.Value) -> None:
    """Let ``end`` give what positions [B, S] make, [B, S, 1, …]."""
    chain: list[ir.Node] = []
    value = operand(end, 0)
    while (node := value.producer()) is not None and not is_op(node, "Range"):
        chain.append(node)
        value = next(v for v in node.inputs if v is not None and scalar(v) is None)
    new = positions
    if value.dtype is not None and value.dtype != positions.dtype:
        new = emit(end, "Cast", [positions], value, {"to": int(value.dtype)}, dims(positions))
    for node in reversed(chain):
        inputs = [new if v is not None and scalar(v) is None else v for v in node.inputs]
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        new = emit(end, node.op_type, inputs, node.outputs[0], attributes, dims(positions))
    result = end.outputs[0]
    shape = [*dims(positions), *dims(result)[2:]]
    if len(shape) > 2:
        axes = int_initializer(graph, [*range(2, len(shape))], "last_axes")
        new = emit(end, "Unsqueeze", [new, axes], result, None, shape)
    substitute(result, new)
