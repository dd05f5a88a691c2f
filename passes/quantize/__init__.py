"""Passes of the group `quantize`."""

from __future__ import annotations

from optc.ir.pipeline.base import Pass
from optc.passes.quantize.activations.allocate_activations import AllocateActivations
from optc.passes.quantize.budget.allocate_bits import AllocateBits
from optc.passes.quantize.calibrate import Calibrate
from optc.passes.quantize.cast_weights import CastWeights
from optc.passes.quantize.compute_type import ComputeType
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.quantize_static import QuantizeStatic
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.rotate.rotate import Rotate
from optc.passes.quantize.rotate.rotate_activations import RotateActivations
from optc.passes.quantize.rotate.rotate_kv import RotateKV
from optc.passes.quantize.smooth.smooth import Smooth
from optc.passes.quantize.trained.trained_weights import TrainedWeights

PASSES: tuple[type[Pass], ...] = (
    Rotate,
    RotateKV,
    RotateActivations,
    TrainedWeights,
    Calibrate,
    Smooth,
    AllocateBits,
    AllocateActivations,
    PropagateErrors,
    QuantizeWeights,
    QuantizeStatic,
    CastWeights,
    ComputeType,
)
