"""`halve-weights`: weights are kept as float16, and become float32 when an engine is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.forms.batched import BatchedTensors
from optc.ir.forms.form import Form
from optc.ir.graph import add_initializer
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase

#: The largest float16.
_MOST = 65504.0


@dataclass(frozen=True)
class HalveWeights(Pass):
    """Float32 weights become float16 with a Cast behind them, which ONNX Runtime folds when it
    loads: files have half the size, and products are computed in float32.

    Attributes:
        least: Weights of fewer elements, such as biases, stay as they are.
    """

    name: ClassVar[str] = "halve-weights"
    phase: ClassVar[Phase] = Phase.ROUNDING
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (BatchedTensors,)

    least: int = 256

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report, graph = PassReport(), model.graph
        outputs = set(graph.outputs)
        for value in list(graph.initializers.values()):
            tensor = value.const_value
            if tensor is None or tensor.dtype != ir.DataType.FLOAT or value in outputs:
                continue
            if tensor.size < self.least:
                continue
            array = tensor.numpy()
            if np.abs(array).max(initial=0.0) > _MOST:
                report.skip(None, f"{value.name}: it has values that float16 does not hold")
                continue
            _halve(graph, value, array)
            report.add("weight")
        report.facts = {"computes_in": "float32"}
        return report


def _halve(graph: ir.Graph, value: ir.Value, array: np.ndarray) -> None:
    name = f"{value.name}.half"
    half = add_initializer(graph, ir.tensor(array.astype(np.float16), name=name), name)
    widened = ir.node("Cast", [half], {"to": int(ir.DataType.FLOAT)}, name=f"{value.name}.widen")
    widened.outputs[0].type, widened.outputs[0].shape = value.type, value.shape
    graph.insert_before(graph[0], widened)
    ir.convenience.replace_all_uses_with(value, widened.outputs[0])
    del graph.initializers[str(value.name)]
