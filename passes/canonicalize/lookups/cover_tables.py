"""`cover-tables`: a table that is looked up by what is computed of a token has a row of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import add_initializer, constant, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.weights import Given, LazyWeight, as_lazy, take_rows
from optc.passes.canonicalize.dataflow import dims, operand, rank, scalar

Array = npt.NDArray[Any]
#: What is computed of whole numbers alone.
_OPERATORS: dict[str, Callable[..., Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Min": np.minimum,
    "Max": np.maximum,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Equal": np.equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Not": np.logical_not,
    "Where": np.where,
    "Identity": np.asarray,
}


@dataclass(frozen=True)
class CoverTables(Pass):
    """``Gather`` of a table by what element-wise operators make of a token's id and of constants ->
    ``Gather`` by the id itself, of a table whose row i is the one that is looked up for token i.

    Tables of fewer tokens than the vocabulary has are read so: further tokens have the row of one
    of them. The vocabulary is what the ids themselves are looked up in. Rows are read on demand.
    """

    name: ClassVar[str] = "cover-tables"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.MOVES_WEIGHTS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report, graph = PassReport(), model.graph
        tokens = next((value for value in graph.inputs if value.name == "input_ids"), None)
        lookups = [node for node in graph if is_op(node, "Gather") and _is_lookup(node)]
        direct = [node for node in lookups if node.inputs[1] is tokens]
        if tokens is None or not direct:
            return report
        ids = np.arange(min(int(str(dims(operand(node, 0))[0])) for node in direct))
        for node in lookups:
            rows = None if node in direct else _of_ids(operand(node, 1), tokens, ids)
            if rows is None or not _within(rows, operand(node, 0)):
                continue
            node.replace_input_with(0, _table(graph, operand(node, 0), rows))
            node.replace_input_with(1, tokens)
            report.add("table")
        remove_unused(model)
        return report


def _is_lookup(node: ir.Node) -> bool:
    """True if rows of a table, which is a weight, are looked up."""
    table = operand(node, 0)
    by_rows = rank(table) == 2 and node.attributes.get_int("axis", 0) == 0
    return by_rows and constant(table) is not None and isinstance(dims(table)[0], int)


def _of_ids(value: ir.Value, tokens: ir.Value, ids: Array) -> Array | None:
    """The values of ``value`` for each of the ids; None if it is made of anything else."""
    if value is tokens:
        return ids
    number = scalar(value)
    if number is not None:
        return np.asarray(number).astype(np.int64)
    node = value.producer()
    if node is None or node.domain or node.op_type not in _OPERATORS:
        return None
    operands = [None if v is None else _of_ids(v, tokens, ids) for v in node.inputs]
    return None if any(v is None for v in operands) else _OPERATORS[node.op_type](*operands)


def _within(rows: Array, table: ir.Value) -> bool:
    """True if all are numbers of rows of the table, one for each id."""
    whole = rows.ndim == 1 and rows.dtype == np.int64
    return whole and rows.min() >= 0 and rows.max() < int(str(dims(table)[0]))


def _table(graph: ir.Graph, table: ir.Value, rows: Array) -> ir.Value:
    """The rows of a table as often as they are given."""
    content = constant(table)
    assert content is not None
    weight = as_lazy(content)

    def read(start: int, stop: int) -> Array:
        found, places = np.unique(rows[start:stop], return_inverse=True)
        return take_rows(weight, found).read_rows(0, len(found))[places]

    name = f"{table.name}.of_tokens"
    shape = (len(rows), *weight.rows_shape[1:])
    given = None if weight.given is None else Given(weight.given.label)
    return add_initializer(graph, LazyWeight(read, shape, weight.dtype, name, given=given), name)
