"""Scales that engines have exactly."""

from __future__ import annotations

import numpy as np

from optc.ir.weights import Array

#: Least scale: the smallest normal float16, so that every compute type has it as it is.
_LEAST_SCALE = 2.0**-14


def storable(scales: Array | np.float32) -> Array:
    """Scales that float16 has exactly, none below its smallest normal number."""
    bounded = np.clip(scales, _LEAST_SCALE, np.finfo(np.float16).max)
    return np.asarray(bounded, np.float16).astype(np.float32)
