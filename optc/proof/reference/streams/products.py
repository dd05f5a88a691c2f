"""Products of linear layers over a text in floats: bfloat16 where the CPU has it, else float32.

Most of a calibration's time is W x for every token of the text. CPUs with AVX512-BF16 or AMX
multiply bfloat16 at twice the pace of float32 and more, and add in float32; oneDNN has the
kernels, PyTorch brings it. Inputs, weights and results are rounded to bfloat16 (8 bits of
significand, 0.2 % each): weights of checkpoints in bfloat16 not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import ml_dtypes
import numpy as np

from optc.proof.reference.execution.device import CPU
from optc.proof.reference.streams.floats import (
    Float32,
    as_float32,
    bfloat16_tensor,
    float32_tensor,
)
from optc.proof.reference.streams.gram import Float64, hessian_of, sum_of
from optc.proof.reference.submodel import Array

if TYPE_CHECKING:
    import torch

#: Names of both kinds of products.
FLOAT32, BFLOAT16 = "float32", "bfloat16"


class Products(Protocol):
    """Multiplies values of a text with weights.

    Attributes:
        name: `FLOAT32`, `BFLOAT16` or `int8_products.INT8`.
        dtype: What inputs of products are rounded to, so that they may be kept in it.
    """

    name: str
    dtype: np.dtype[Any]

    def weight(self, rows: Array) -> Any:
        """Rows [N, K], ready to be multiplied with."""
        ...

    def __call__(self, x: Array, weights: Sequence[Any]) -> list[Float32]:
        """x Wᵀ [..., N] of values x [..., K], in float32 or ``dtype``, for each of ``weights``."""
        ...

    def hessian(self, x: Array) -> Float64:
        """E[x xᵀ], [K, K], of inputs x [..., K]: of a matrix that is positive semidefinite."""
        ...

    def sum(self, left: Float32, right: Array) -> Float32:
        """leftᵀ right, [N, K], of values of some tokens [T, N] and [T, K]."""
        ...


@dataclass(frozen=True)
class RunProducts:
    """The products for two runs of a model.

    Attributes:
        original: Of the model as it is.
        changed: Of the layers whose weights are replaced.
    """

    original: Products
    changed: Products


class Float32Products:
    """Products in float32, by NumPy's BLAS or on a GPU.

    Args:
        device: As `optc.proof.reference.execution.device` names it.
    """

    name = FLOAT32
    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __init__(self, device: str = CPU) -> None:
        self._device = device

    def weight(self, rows: Array) -> Any:
        """Rows [N, K] in float32."""
        fixed = np.ascontiguousarray(rows, np.float32)
        return fixed if self._device == CPU else float32_tensor(fixed).to(self._device)

    def hessian(self, x: Array) -> Float64:
        """E[x xᵀ] of products in float32."""
        return hessian_of(x)

    def sum(self, left: Float32, right: Array) -> Float32:
        """leftᵀ right in float32."""
        return sum_of(left, right)

    def __call__(self, x: Array, weights: Sequence[Any]) -> list[Float32]:
        """x Wᵀ for each weight."""
        if self._device != CPU:
            return _on_device(float32_tensor(as_float32(x)).to(self._device), weights)
        flat = x.reshape(-1, x.shape[-1]).astype(np.float32, copy=False)
        return [(flat @ w.T).reshape(*x.shape[:-1], len(w)) for w in weights]


class OneDnnProducts:
    """Products by oneDNN, which PyTorch brings.

    Args:
        threads: Threads of PyTorch, for the process from now on.
    """

    def __init__(self, threads: int) -> None:
        import torch  # takes a second, and 150 MB

        torch.set_num_threads(threads)


class BFloat16Products(OneDnnProducts):
    """Products of bfloat16, added in float32, by oneDNN or on a GPU.

    Args:
        threads: Threads of PyTorch, for the process from now on.
        device: As `optc.proof.reference.execution.device` names it.
    """

    name = BFLOAT16
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)

    def __init__(self, threads: int, device: str = CPU) -> None:
        super().__init__(threads)
        self._device = device

    def weight(self, rows: Array) -> torch.Tensor:
        """Rows [N, K] in bfloat16."""
        return bfloat16_tensor(rows).to(self._device)

    def hessian(self, x: Array) -> Float64:
        """E[x xᵀ] of products in float32."""
        return hessian_of(x)

    def sum(self, left: Float32, right: Array) -> Float32:
        """leftᵀ right in float32."""
        return sum_of(left, right)

    def __call__(self, x: Array, weights: Sequence[torch.Tensor]) -> list[Float32]:
        """x Wᵀ for each weight."""
        return _on_device(bfloat16_tensor(x).to(self._device), weights)


def _on_device(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> list[Float32]:
    """x Wᵀ in float32 for each weight, on their device."""
    import torch

    with torch.inference_mode():
        results = [torch.nn.functional.linear(x, w).float() for w in weights]
    return [result.cpu().numpy() for result in results]
