"""Values of a text in float32 and in bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from optc.reference.submodel import Array

if TYPE_CHECKING:
    import torch

Float32 = npt.NDArray[np.float32]


def rounded(values: Array, dtype: np.dtype[Any]) -> Array:
    """Float32 values in ``dtype``, float32 or bfloat16, rounded to nearest, ties to even."""
    if dtype == values.dtype:
        return values
    if dtype == np.float32:
        return as_float32(values)
    import torch

    return bfloat16_tensor(values).view(torch.int16).numpy().view(dtype)


def as_float32(values: Array) -> Float32:
    """Values in float32 or bfloat16, in float32."""
    if values.dtype == np.float32:
        return values
    bits = np.ascontiguousarray(values).view(np.uint16).astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)


def bfloat16_tensor(values: Array) -> torch.Tensor:
    """In bfloat16; without a copy where they are."""
    import torch

    fixed = np.ascontiguousarray(values)
    if not fixed.flags.writeable:  # PyTorch warns of such
        fixed = fixed.copy()
    if fixed.dtype != np.dtype(ml_dtypes.bfloat16):
        return torch.from_numpy(fixed.astype(np.float32, copy=False)).to(torch.bfloat16)
    return torch.from_numpy(fixed.view(np.int16)).view(torch.bfloat16)
