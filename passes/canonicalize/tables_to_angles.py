"""`tables-to-angles`: a table of sines and cosines by position becomes what it was made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.emit import Emitter
from optc.ir.functions import is_op
from optc.ir.graph import constant, constant_ints, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.weights import LazyWeight
from optc.passes.canonicalize.dataflow import dims, operand, producer, rank, substitute

Float64 = npt.NDArray[np.float64]

#: Relative error of an angle that is a product in float32, and of its sine.
_PRODUCT, _VALUE = 2e-7, 1e-5


@dataclass(frozen=True)
class TablesToAngles(Pass):
    """Rotary tables, of which one row is taken for each token.

    ``Gather`` or ``GatherND`` of a constant [P, 2r] by positions [B, S], whose columns are sines of
    position times frequency, then cosines of the same angles, or the other way round, becomes
    ``Cos`` and ``Sin`` of such products, joined. They go on behind the table's last row.
    """

    name: ClassVar[str] = "tables-to-angles"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in list(model.graph):
            positions = _positions(node)
            table = _table(node) if positions is not None else None
            if positions is None or table is None:
                continue
            found = _frequencies(table)
            if found is not None:
                _replace(model.graph, node, positions, *found)
                report.add("table")
        remove_unused(model)
        return report


def _positions(node: ir.Node) -> ir.Value | None:
    """The integers [B, S] that choose rows of ``node``'s table."""
    if is_op(node, "Gather") and node.attributes.get_int("axis", 0) == 0:
        chosen = operand(node, 1)
    elif is_op(node, "GatherND") and node.attributes.get_int("batch_dims", 0) == 0:
        column = producer(node.inputs[1], "Unsqueeze")
        if column is None or constant_ints(column.inputs[1]) not in ([-1], [2]):
            return None
        chosen = operand(column, 0)
    else:
        return None
    return chosen if chosen.is_graph_input() and rank(chosen) == 2 else None


def _table(node: ir.Node) -> Float64 | None:
    """``node``'s computed table [P, 2r]. A weight is none: it is learned, and stays unread here."""
    table = constant(node.inputs[0])
    if table is None or isinstance(table, LazyWeight) or len(table.shape) != 2:
        return None
    return table.numpy().astype(np.float64)


def _frequencies(table: Float64) -> tuple[Float64, bool] | None:
    """Radians a position [r], and whether sines come first; None if it is no such table."""
    rows, columns = table.shape
    half = columns // 2
    if rows < 2 or columns % 2:
        return None
    parts = table[:, :half], table[:, half:]
    for sines_first, (sin, cos) in ((True, parts), (False, parts[::-1])):
        if not sin[0].any() and (cos[0] == 1).all():
            return _read(sin, cos, sines_first)
    return None


def _read(sin: Float64, cos: Float64, sines_first: bool) -> tuple[Float64, bool] | None:
    found = np.arctan2(sin[1], cos[1])
    position = 2
    while position < len(sin):  # a later row says it more exactly, once it is known how often it
        angle = np.arctan2(sin[position], cos[position])  # has turned
        found = (angle + 2 * np.pi * np.round((found * position - angle) / (2 * np.pi))) / position
        position *= 2
    angles = np.arange(len(sin))[:, None] * found
    near = _VALUE + _PRODUCT * np.abs(angles)
    agrees = (np.abs(np.sin(angles) - sin) < near) & (np.abs(np.cos(angles) - cos) < near)
    return (found, sines_first) if agrees.all() else None


def _replace(
    graph: ir.Graph, node: ir.Node, positions: ir.Value, frequencies: Float64, sines_first: bool
) -> None:
    batch, tokens = (str(dim) for dim in dims(positions))
    shape: list[Any] = [batch, tokens, len(frequencies)]
    emit = Emitter(graph, f"{node.name}.angles")
    real = emit.op("real", "Cast", [positions], [batch, tokens], to=ir.DataType.FLOAT.value)
    column = emit.op("column", "Unsqueeze", [real, emit.integers("last", [-1])], [*shape[:2], 1])
    turns = emit.constant("frequencies", frequencies.astype(np.float32))
    angle = emit.op("angle", "Mul", [column, turns], shape)
    parts = [emit.op(f.lower(), f, [angle], shape) for f in ("Sin", "Cos")]
    order = parts if sines_first else parts[::-1]
    joined = emit.op("table", "Concat", order, [*shape[:2], 2 * len(frequencies)], axis=-1)
    graph.insert_before(node, emit.nodes)
    substitute(node.outputs[0], joined)
