"""Scales that engines have exactly."""

from __future__ import annotations

import numpy as np

from optc.ir.weights import Array

#: Least scale: the smallest normal float16, so that every compute type has it as it is.
_LEAST_SCALE = 2.0**-14
_LARGEST_SCALE = float(np.finfo(np.float16).max)


def storable(scales: Array | np.float32) -> Array:
    """Scales that float16 has exactly, none below its smallest normal number."""
    bounded = np.clip(scales, _LEAST_SCALE, _LARGEST_SCALE)
    return np.asarray(bounded, np.float16).astype(np.float32)


def beyond_scales(scale: float) -> str:
    """Why a scale cannot be stored without saturating values or losing bits; empty if it can."""
    if scale > _LARGEST_SCALE:
        return f"its scale {scale:.3g} exceeds float16, so that values would saturate"
    if scale < _LEAST_SCALE:
        return (
            f"its scale {scale:.3g} is beneath float16's normal numbers, so that bits would be lost"
        )
    return ""
