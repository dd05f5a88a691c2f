"""The passes from the ragged step to ONNX Runtime's operators, in order."""

from __future__ import annotations

import onnx_ir as ir

from optc import registry
from optc.backends.onnxruntime.legalize.attention import GroupQueryAttention
from optc.backends.onnxruntime.legalize.fused import FuseOperators
from optc.backends.onnxruntime.legalize.matmuls import LowerMatmuls
from optc.ir.graph import remove_unused
from optc.pipeline.pipeline import PassRecord, Pipeline

#: Inputs of the slot form that an engine lacks where nothing reads them.
_OPTIONAL_INPUTS = ("positions", "write_indices")


def legalize(model: ir.Model, positions: int) -> tuple[PassRecord, ...]:
    """Rewrite a ragged step into what ONNX Runtime runs fast, in place.

    Args:
        model: The ragged step.
        positions: Rows of rotary tables.

    Raises:
        UnsupportedError: The model has what slots have no place for.
    """
    lowering = Pipeline(
        (
            registry.passes()["kv-slots"](),
            LowerMatmuls(),
            FuseOperators(),
            GroupQueryAttention(positions),
        )
    )
    runs = lowering.run(model)
    remove_unused(model)
    for value in [v for v in model.graph.inputs if v.name in _OPTIONAL_INPUTS and not v.uses()]:
        model.graph.inputs.remove(value)
    return tuple(runs)
