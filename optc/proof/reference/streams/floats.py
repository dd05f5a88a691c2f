"""Values of a text in float32 and in bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import numpy.typing as npt

from optc.proof.reference.submodel import Array

if TYPE_CHECKING:
    import torch

Float32 = npt.NDArray[np.float32]


def put(target: Array, values: Array) -> None:
    """Write float32 values to an array in float32 or bfloat16, rounded to nearest, ties to even."""
    if target.dtype == values.dtype:
        target[...] = values
        return
    import torch

    given = torch.from_numpy(np.require(values, np.float32, ["C", "W"]))
    torch.from_numpy(target.view(np.int16)).view(torch.bfloat16).copy_(given)


def as_float32(values: Array) -> Float32:
    """Values in float32 or bfloat16, in float32."""
    if values.dtype == np.float32:
        return values
    wide: Float32 = bfloat16_tensor(values).float().numpy()
    return wide


def float32_tensor(values: Array) -> torch.Tensor:
    """Values in float32 or bfloat16, in float32; without a copy where they are, so not to be
    written to."""
    import torch

    if values.dtype == np.float32:
        return torch.from_numpy(np.require(values, np.float32, ["C", "W"]))
    return bfloat16_tensor(values).float()


def bfloat16_tensor(values: Array) -> torch.Tensor:
    """In bfloat16; without a copy where they are."""
    import torch

    fixed = np.ascontiguousarray(values)
    if not fixed.flags.writeable:  # PyTorch warns of such
        fixed = fixed.copy()
    if fixed.dtype != np.dtype(ml_dtypes.bfloat16):
        return torch.from_numpy(fixed.astype(np.float32, copy=False)).to(torch.bfloat16)
    return torch.from_numpy(fixed.view(np.int16)).view(torch.bfloat16)
