"""An engine that is not built: its weights and the costs of its steps, by the lowering alone."""

from __future__ import annotations

import onnx_ir as ir

from optc.backend import BuildOptions
from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.lowering.costs import CUDA_PEAKS, step_costs
from optc.backends.tvm.lowering.lower_model import lower_model
from optc.backends.tvm.weights.weights_file import tensor_bytes
from optc.roofline.estimate import EngineEstimate
from optc.target import Target


def estimate_engine(model: ir.Model, target: Target, options: BuildOptions) -> EngineEstimate:
    """The engine that `optc.backends.tvm.compiling.build.build_engine` would build.

    Raises:
        UnsupportedError: Nodes or shapes that the backend cannot take.
        UnavailableError: No kernel for the target.
    """
    lowered = lower_model(model, target, options)
    tensors = [tensor for weight in lowered.weights for tensor in weight.tensors]
    peaks = CUDA_PEAKS if target.kind == "cuda" else isa_of(target).peaks
    costs = step_costs(lowered.program, peaks)
    return EngineEstimate(lowered.spec, sum(map(tensor_bytes, tensors)), costs)
