"""`rotate`: the residual stream and the values of attention are turned, the function stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.forms.decoder import Dense
from optc.ir.forms.form import Form
from optc.ir.graph import add_initializer, width
from optc.ir.linear import fixed_metadata
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassCosts, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.numerics.hadamard import rotation
from optc.passes.quantize.folding.places import VALUES, Place, find_places
from optc.passes.quantize.folding.weights import (
    Float32,
)
from optc.passes.quantize.rotate.residual import (
    NotTurnableError,
    Residual,
    find_residual,
    turn_layers,
)
from optc.passes.quantize.rotate.values import head_size, turn_values
from optc.passes.quantize.smooth.smooth import LATER, refuse_adapters

#: Seeds of the signs: of the residual stream's rotation, and of the heads'.
_STREAM_SEED, _HEAD_SEED = 1, 2


@dataclass(frozen=True)
class Rotate(Pass):
    """Turns by Hadamard matrices with random signs (Ashkboos et al., QuaRot, 2024,
    arXiv:2404.00456), which spread outliers over all channels.

    1. The residual stream, if all who write it are linear layers and all who read it are RMS norms:
       norms' scales go into the layers behind them, and the rotation into the weights. The
       embedding's output is turned, and the last norm's input turned back, by a float product each:
       embedding and head stay as they are, tied or not, and so does what draft heads read.
    2. The values of each KV head and the columns of the layer behind the attention that read it.
    """

    name: ClassVar[str] = "rotate"
    pays: ClassVar[str] = (
        "Where inputs have outliers: on a planted model int8 lost .0006 instead of .0095 of "
        "mean KL, 4 bits .0065 with GPTQ instead of .0113; without outliers, nothing (ADR "
        "0098)."
    )
    phase: ClassVar[Phase] = Phase.BASIS
    effects: ClassVar[Effect] = Effect.MOVES_KV | Effect.REBASES_HIDDEN
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (Dense,)
    before: ClassVar[tuple[str, ...]] = ("calibrate", "smooth", *LATER)

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """Rotations, and tiles that are mixed; these while they are read, too."""
        from optc.passes.calibrating.predictions.memory import turned, turning

        return PassCosts(working=turning(model), reading=turned(model))

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            InputError: The model is to take adapters.
        """
        refuse_adapters(self, context.later)
        report = PassReport()
        try:
            _turn_stream(model, find_residual(model), report)
        except NotTurnableError as reason:
            report.skip(None, str(reason))
        for place in find_places(model, PassReport()):
            if place.kind == VALUES:
                _turn_values(place, report)
        return report


def _turn_stream(model: ir.Model, residual: Residual, report: PassReport) -> None:
    size = width(residual.embedded)
    turn = rotation(size, _STREAM_SEED) if size else None
    if turn is None:
        raise NotTurnableError(f"no Hadamard matrix of order {size} is known")
    turn_layers(residual, turn)
    _turn_ends(model, residual, turn)
    report.add("residual stream")


def _turn_ends(model: ir.Model, residual: Residual, turn: Float32) -> None:
    """x becomes x R behind the embedding, and x Rᵀ before the last norm."""
    embedded, last = residual.embedded, residual.last
    gather = embedded.producer()
    if gather is None or last is None or last.inputs[0] is None:
        raise ValueError("a residual stream without an end")
    back = _product(model, last.inputs[0], np.ascontiguousarray(turn.T), "turn_back")
    model.graph.insert_before(last, [back])
    last.replace_input_with(0, back.outputs[0])
    users = list(embedded.uses())
    forth = _product(model, embedded, turn, "turn")
    model.graph.insert_after(gather, [forth])
    for use in users:
        use.node.replace_input_with(use.idx, forth.outputs[0])


def _product(model: ir.Model, x: ir.Value, matrix: Float32, name: str) -> ir.Node:
    tensor = ir.tensor(matrix, name=f"rotate.{name}.matrix")
    operand = add_initializer(model.graph, tensor, f"rotate.{name}.matrix", fixed_metadata())
    node = ir.Node("", "MatMul", [x, operand], name=f"rotate.{name}")
    result = node.outputs[0]
    result.name, result.type, result.shape = f"rotate.{name}.result", x.type, x.shape
    return node


def _turn_values(place: Place, report: PassReport) -> None:
    size = head_size(place)
    turn = rotation(size, _HEAD_SEED)
    if turn is None:
        report.skip(place.x.producer(), f"no Hadamard matrix of order {size} is known")
        return
    turn_values(place, turn)
    report.add("values of an attention")
