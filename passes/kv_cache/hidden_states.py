"""`hidden-states`: the last hidden states of a step, for a layer that drafts by them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, get_args

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.forms.form import Form
from optc.ir.forms.ragged import HIDDEN, RaggedStep
from optc.ir.functions import is_op
from optc.ir.graph import width
from optc.ir.linear import Linear, head_of
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.runtime.executable.executable import HiddenRows


@dataclass(frozen=True)
class HiddenStates(Pass):
    """Makes the last hidden states, behind the last norm, the output ``hidden``.

    `kv-cache` computes what only the logits need for ``logit_rows`` alone. With ``all`` rows
    [T, D] are computed up to the head, and those are gathered before it. With ``logits`` the output
    is [R, D], and nothing else is computed than before.

    Args:
        rows: Of which rows: ``all`` or ``logits``.
    """

    rows: str = "all"

    name: ClassVar[str] = "hidden-states"
    phase: ClassVar[Phase] = Phase.ADDITION
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS
    added_by: ClassVar[str] = "--eagle"
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (RaggedStep,)
    gives: ClassVar[type[Form]] = RaggedStep
    #: the head is found by its float weight
    before: ClassVar[tuple[str, ...]] = (
        "quantize-weights",
        "cast-weights",
        "adapters",
        "medusa-heads",
    )

    def __post_init__(self) -> None:
        """Check ``rows``.

        Raises:
            InputError: It is none of the two.
        """
        self.check_option("rows", get_args(HiddenRows))

    def requires(self, model: ir.Model) -> None:
        """The model has a head, and no output of hidden states.

        Raises:
            InputError: It has none, or it has one.
        """
        where = f"pass {self.name}"
        if head_of(model) is None:
            raise InputError("the logits come from no linear layer", where=where)
        if any(value.name == HIDDEN for value in model.graph.outputs):
            raise InputError(
                "the model gives hidden states already",
                where=where,
                hint="put it before medusa-heads, and only once",
            )

    def ensures(self, model: ir.Model) -> None:
        """The output is there."""
        if model.graph.outputs[-1].name != HIDDEN:
            raise RuntimeError("hidden-states added no output")

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Extend ``model`` in place."""
        report, step, head = PassReport(), RaggedStep.read(model), head_of(model)
        if head is None:
            raise RuntimeError("the model lost its head")
        given: HiddenRows = "all" if self.rows == "all" else "logits"
        if given == "all":
            _compute_all(model.graph, head, report)
        hidden = head.matmul.inputs[0]  # another value than before where a gather stood there
        if hidden is None:
            raise RuntimeError("the head reads nothing")
        _name(hidden, HIDDEN, "T" if given == "all" else "R")
        model.graph.outputs.append(hidden)
        report.add("output")
        if given == "all":
            _gather_before_head(model.graph, head, hidden)
        replace(step, hidden=given).attach(model)
        report.facts = {"width": width(head.x)}
        return report


def _compute_all(graph: ir.Graph, head: Linear, report: PassReport) -> None:
    """Undo what `kv-cache` gathered."""
    rows = _logit_rows(graph)
    for node in list(rows.consumers()):
        if is_op(node, "Gather") and node.inputs[1] is rows:
            _undo(graph, node, head)
            report.add("gather")


def _logit_rows(graph: ir.Graph) -> ir.Value:
    return next(value for value in graph.inputs if value.name == "logit_rows")


def _undo(graph: ir.Graph, gather: ir.Node, head: Linear) -> None:
    """Let what reads gathered rows read all of them, and restate shapes up to the head."""
    source, picked = gather.inputs[0], gather.outputs[0]
    if source is None:
        raise RuntimeError("a Gather without data")
    waiting, seen = list(picked.consumers()), {head.matmul}
    picked.replace_all_uses_with(source)
    graph.remove(gather, safe=True)
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        for value in node.outputs:
            if value.shape is not None and value.shape[0] == "R":
                value.shape = ir.Shape(["T", *list(value.shape)[1:]])
            waiting += value.consumers()


def _gather_before_head(graph: ir.Graph, head: Linear, hidden: ir.Value) -> None:
    """Gather the wanted rows of ``hidden`` before the head."""
    attributes = ir.convenience.convert_attributes({"axis": 0})
    gather = ir.Node("", "Gather", [hidden, _logit_rows(graph)], attributes, num_outputs=1)
    _name(gather.outputs[0], f"{HIDDEN}.wanted", "R", width(hidden))
    graph.insert_before(head.matmul, [gather])
    head.matmul.replace_input_with(0, gather.outputs[0])


def _name(value: ir.Value, name: str, rows: str, size: int | None = None) -> None:
    """Name a value of float32 [rows, size], of its own width if ``size`` is None."""
    value.name, value.type = name, ir.TensorType(ir.DataType.FLOAT)
    value.shape = ir.Shape([rows, width(value) if size is None else size])
