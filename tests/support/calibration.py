"""Input ranges as a calibration would leave them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from optc.passes.numerics.statistics import INPUT_RANGE
from optc.proof.reference.calibration import calibration_of


def set_input_ranges(model: ir.Model, magnitude: float, names: Iterable[str] = ()) -> None:
    """Say that the inputs of these weights, or of all, were at most ``magnitude``."""
    weights = list(names) or list(model.graph.initializers)
    calibration_of(model).put(weights, INPUT_RANGE, np.array(magnitude))
