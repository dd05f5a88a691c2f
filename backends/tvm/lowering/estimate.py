"""An engine that is not built: its weights and the costs of its steps, by the lowering alone."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optc.backend import BuildOptions
from optc.backends.tvm.lowering.costs import step_costs
from optc.backends.tvm.lowering.lower_model import lower_model
from optc.backends.tvm.program import kernel_names
from optc.backends.tvm.runtime_libs import libraries_bytes
from optc.backends.tvm.weights.weights_file import laid_out_bytes, tensor_bytes
from optc.proof.roofline.estimate import EngineEstimate
from optc.system.hardware.target import Target

#: Of an engine's code, for each kernel: 38 to 51 KB in engines of int8 and int4 weights.
_KERNEL_BYTES = 45_000
#: Seconds of one thread in which a kernel compiles: 0.3 in engines of int8 weights, 0.8 of int4.
_KERNEL_S = 0.5


def estimate_engine(
    model: ir.Model, target: Target, options: BuildOptions, peaks: Sequence[str]
) -> EngineEstimate:
    """The engine that a build would give.

    Args:
        model: The ragged step.
        target: What it is for.
        options: Limits.
        peaks: Kinds of arithmetic whose ceilings are known there (`step_costs`).

    Raises:
        UnsupportedError: Nodes or shapes that the backend cannot take.
        UnavailableError: No kernel for the target.
    """
    lowered = lower_model(model, target, options, exact=False)
    kernels = len(kernel_names(lowered.program))
    tensors = [tensor for weight in lowered.weights for tensor in weight.tensors]
    return EngineEstimate(
        lowered.spec,
        sum(map(tensor_bytes, tensors)),
        step_costs(lowered.program, peaks),
        file_bytes=laid_out_bytes(lowered.weights) + libraries_bytes(),
        code_bytes=_KERNEL_BYTES * kernels,
        tensors=len(tensors),
        compile_s=_KERNEL_S * kernels,
    )
