"""`hidden-states`: the last hidden states of all rows, for a layer that drafts by them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import onnx_ir as ir

from optc.errors import InputError
from optc.forms.form import Form
from optc.forms.ragged import HIDDEN, RaggedStep
from optc.ir.functions import is_op
from optc.ir.graph import width
from optc.ir.linear import Linear, head_of
from optc.pipeline.base import Pass, PassReport


@dataclass(frozen=True)
class HiddenStates(Pass):
    """Makes the last hidden states [T, D], behind the last norm, the output ``hidden``.

    `kv-cache` computes what only the logits need for ``logit_rows`` alone. Here all rows are
    computed up to the head, and those are gathered before it.
    """

    name: ClassVar[str] = "hidden-states"
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

    def run(self, model: ir.Model) -> PassReport:
        """Extend ``model`` in place."""
        report, step, head = PassReport(), RaggedStep.read(model), head_of(model)
        if head is None:
            raise RuntimeError("the model lost its head")
        rows = next(value for value in model.graph.inputs if value.name == "logit_rows")
        for node in list(rows.consumers()):
            if is_op(node, "Gather") and node.inputs[1] is rows:
                _undo(model.graph, node, head)
                report.add("gather")
        _expose(model.graph, head, rows)
        replace(step, hidden=True).attach(model)
        report.facts = {"width": width(head.x)}
        return report


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


def _expose(graph: ir.Graph, head: Linear, rows: ir.Value) -> None:
    """Make what the head reads an output, and gather the wanted rows before the head."""
    hidden = head.matmul.inputs[0]  # another value than before where the gather stood there
    if hidden is None:
        raise RuntimeError("the head reads nothing")
    attributes = ir.convenience.convert_attributes({"axis": 0})
    gather = ir.Node("", "Gather", [hidden, rows], attributes, num_outputs=1)
    picked, float32 = gather.outputs[0], ir.TensorType(ir.DataType.FLOAT)
    picked.name, picked.type = f"{HIDDEN}.wanted", float32
    picked.shape = ir.Shape(["R", width(hidden)])
    graph.insert_before(head.matmul, [gather])
    head.matmul.replace_input_with(0, picked)
    hidden.name, hidden.type = HIDDEN, float32
    hidden.shape = ir.Shape(["T", width(hidden)])
    graph.outputs.append(hidden)
