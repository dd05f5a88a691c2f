"""`medusa-heads`: heads that guess the tokens after the next one, from the last hidden state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from optc.errors import InputError
from optc.importer.additions.heads import CONFIG_FILE, HINT, WEIGHTS_FILE, digest_heads
from optc.importer.json_file import read_object
from optc.importer.safetensors import StoredTensor, read_header
from optc.ir.forms.form import Form
from optc.ir.forms.ragged import RaggedStep
from optc.ir.functions import make_node
from optc.ir.graph import add_initializer, width
from optc.ir.linear import Linear, head_of
from optc.ir.pipeline.base import ALONE, LOCAL, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Phase
from optc.ir.weights import LazyWeight, concatenate_rows
from optc.passes.quantize.kept_rows import leave
from optc.proof.reference.calibration import calibration_of


@dataclass(frozen=True)
class MedusaHeads(Pass):
    """Adds Medusa heads (Cai et al., 2024), which share the model's own output matrix.

    The model's last hidden states [R, D], behind the last norm, become the output ``hidden``,
    unless `hidden-states` has made one of those of all rows.
    Beside the step there is a second graph, from the input ``medusa_hidden`` [H, D] to the output
    ``medusa_logits`` [H * K, V], head after head for each row: it is computed for the rows that
    were accepted only, and with the weights of the head as the passes leave them.

    Attributes:
        folder: What ``examples/training/train_medusa.py`` wrote.
        sha256: Of its files (`digest_heads`), in hex: what is recorded of the heads. Where it is
            given it must be theirs.
    """

    name: ClassVar[str] = "medusa-heads"
    phase: ClassVar[Phase] = Phase.ADDITION
    added_by: ClassVar[str] = "--medusa"
    adds: ClassVar[str] = "ResidualHeads"
    unlike_class: ClassVar[str] = "the engine has Medusa heads, which the model's class has not"
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (RaggedStep,)
    gives: ClassVar[type[Form]] = RaggedStep
    before: ClassVar[tuple[str, ...]] = ("quantize-weights", "cast-weights")

    folder: str = field(default="", metadata=LOCAL)
    sha256: str = ""

    def requires(self, model: ir.Model) -> None:
        """The model has a head, and the folder holds heads of its width.

        Raises:
            InputError: What is missing or does not fit.
        """
        head = head_of(model)
        if head is None:
            raise InputError("the logits come from no linear layer", where=f"pass {self.name}")
        folder = Path(self.folder)
        read_heads(folder, head.weight.rows_shape[1])
        if self.sha256 and digest_heads(folder) != self.sha256:
            raise InputError("the heads are not those of the recipe's sha256", where=self.folder)

    def ensures(self, model: ir.Model) -> None:
        """The second graph is there."""
        if model.graph.outputs[-1].name != "medusa_logits":
            raise RuntimeError("medusa-heads added no output")

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Extend ``model`` in place."""
        report, step = PassReport(), RaggedStep.read(model)
        head = head_of(model)
        if head is None:
            raise RuntimeError("the model lost its head")
        heads = read_heads(Path(self.folder), head.weight.rows_shape[1])
        if not step.hidden:
            _expose(model, head)
        _append(model, head, heads)
        rates = tuple(tuple(row) for row in heads.accept_rates)
        replace(step, accept_rates=rates).attach(model)
        for _ in heads.weights:
            report.add("head")
        report.facts = {"heads": len(heads.weights)}
        return report


@dataclass(frozen=True)
class Heads:
    """Heads as stored: weights [D, D] and biases [D], and by head and rank how often the guess of
    that rank is right."""

    weights: list[StoredTensor]
    biases: list[StoredTensor]
    accept_rates: list[list[float]]


def read_heads(folder: Path, hidden: int) -> Heads:
    """The heads in ``folder``, for a model of width ``hidden``.

    Raises:
        InputError: A file is missing or damaged, or its heads are of another kind or width.
    """
    rates = _accept_rates(folder / CONFIG_FILE)
    file = folder / WEIGHTS_FILE
    if not file.is_file():
        raise InputError(f"no {WEIGHTS_FILE}", where=str(folder), hint=HINT)
    tensors = read_header(file)
    weights: list[StoredTensor] = []
    biases: list[StoredTensor] = []
    for index in range(len(rates)):
        for kind, shape, found in (
            ("weight", (hidden, hidden), weights),
            ("bias", (hidden,), biases),
        ):
            name = f"{index}.0.linear.{kind}"
            if name not in tensors or tensors[name].shape != shape:
                has = list(tensors[name].shape) if name in tensors else "nothing"
                raise InputError(
                    f"{name} should be of shape {list(shape)}, there is {has}",
                    where=str(file),
                    hint="the heads must be trained for this model",
                )
            found.append(tensors[name])
    if len(tensors) != 2 * len(rates):
        raise InputError(
            f"{len(tensors)} tensors for {len(rates)} heads of one block",
            where=str(file),
            hint="heads with output matrices of their own are not taken; " + HINT,
        )
    return Heads(weights, biases, rates)


def _accept_rates(file: Path) -> list[list[float]]:
    config = read_object(file, hint=HINT)
    try:
        values: Any = config["accept_rates"]
        rates = [[float(rate) for rate in row] for row in values]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError("states no accept_rates", where=str(file), hint=HINT) from error
    if not rates or not all(row and all(0 <= rate <= 1 for rate in row) for row in rates):
        raise InputError("accept_rates need a row of rates for each head", where=str(file))
    return rates


def _expose(model: ir.Model, head: Linear) -> None:
    """Make what the head reads an output called ``hidden``."""
    if head.x.is_graph_output():
        raise InputError("the model has Medusa heads already", where="pass medusa-heads")
    head.x.name = "hidden"
    head.x.type = ir.TensorType(ir.DataType.FLOAT)
    model.graph.outputs.append(head.x)


def _lazy(stored: StoredTensor) -> LazyWeight:
    return LazyWeight(
        stored.read_rows, stored.shape, ir.DataType.FLOAT, stored.name, transposed=True
    )


def _append(model: ir.Model, head: Linear, heads: Heads) -> None:
    """Append the second graph: one matmul for all blocks, and one for all outputs."""
    graph, count = model.graph, len(heads.weights)
    hidden = head.weight.rows_shape[1]
    float32 = ir.TensorType(ir.DataType.FLOAT)
    x = ir.Value(name="medusa_hidden", type=float32, shape=ir.Shape(["H", hidden]))
    graph.inputs.append(x)
    blocks = concatenate_rows([_lazy(weight) for weight in heads.weights], "medusa.blocks")
    weight = add_initializer(graph, blocks, "medusa.blocks")
    # They were no part of the model that a calibration has read.
    leave(calibration_of(model), ["medusa.blocks"])
    bias = np.concatenate([b.read_rows(0, hidden) for b in heads.biases])
    biases = add_initializer(graph, ir.tensor(bias, name="medusa.bias"), "medusa.bias")
    matmul = ir.Node("", "MatMul", [x, weight], name="medusa.blocks.matmul")
    add = ir.Node("", "Add", [matmul.outputs[0], biases], name="medusa.blocks.add")
    residual = make_node(
        model, "ResidualHeads", [x, add.outputs[0]], {"heads": count}, name="medusa.residual"
    )
    logits = ir.Node("", "MatMul", [residual.outputs[0], head.initializer], name="medusa.head")
    rows = f"{count}*H"
    shapes: tuple[list[int | str | None], ...] = (
        ["H", count * hidden],
        ["H", count * hidden],
        [rows, hidden],
        [rows, width(head.output)],
    )
    for node, shape in zip((matmul, add, residual, logits), shapes, strict=True):
        graph.append(node)
        value = node.outputs[0]
        value.name, value.type, value.shape = f"{node.name}.out", float32, ir.Shape(shape)
    logits.outputs[0].name = "medusa_logits"
    graph.outputs.append(logits.outputs[0])
