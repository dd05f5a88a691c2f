"""Products of a text's values in int8: a scale for each token and each weight row, exact sums.

What engines with int8 activations do, and at several times the pace of float32 where the CPU
multiplies bytes (AVX512-VNNI, AMX): oneDNN has the kernels, PyTorch brings them. Values and weights
are rounded to 8 bits, so weights should have fewer than that already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optc.reference.streams.floats import Float32, as_float32
from optc.reference.streams.gram import Float64
from optc.reference.streams.int8_gram import LARGEST, multiply, rounded_hessian
from optc.reference.streams.products import OneDnnProducts
from optc.reference.submodel import Array

if TYPE_CHECKING:
    import torch

#: Name of these products.
INT8 = "int8"
#: Tokens that are rounded, multiplied and scaled while they lie in the cache.
_TOKENS = 256


@dataclass(frozen=True)
class Int8Rows:
    """Rows of a weight: values int8 [N, K], scales float32 [N]."""

    values: torch.Tensor
    scales: torch.Tensor


class Int8Products(OneDnnProducts):
    """Products of int8 with scales, added as integers."""

    name = INT8
    dtype: np.dtype[Any] = np.dtype(np.float32)

    def weight(self, rows: Array) -> Int8Rows:
        """Rows [N, K] in int8, a scale for each."""
        values, scales = _rounded(rows)
        return Int8Rows(values, scales[:, 0])

    def hessian(self, x: Array) -> Float64:
        """E[x xᵀ] of inputs rounded to int8 by columns (`int8_gram`)."""
        return rounded_hessian(x)

    def __call__(self, x: Array, weights: Sequence[Int8Rows]) -> list[Float32]:
        """x Wᵀ for each weight."""
        import torch

        flat = x.reshape(-1, x.shape[-1])
        results = [torch.empty(len(flat), len(one.values)) for one in weights]
        for at in range(0, len(flat), _TOKENS):
            part = slice(at, at + _TOKENS)
            values, scales = _rounded(flat[part])
            for one, result in zip(weights, results, strict=True):
                torch.mul(multiply(values, one.values.T), one.scales, out=result[part])
                result[part].mul_(scales)
        return [one.numpy().reshape(*x.shape[:-1], one.shape[1]) for one in results]


def _rounded(rows: Array) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows [N, K] in int8 [N, K], to nearest, and their scales [N, 1]."""
    import torch

    exact = torch.from_numpy(np.require(as_float32(rows), np.float32, ["C", "W"]))
    scales = exact.abs().amax(1, keepdim=True).div_(LARGEST)
    scales.clamp_min_(np.finfo(np.float32).tiny)  # rows of zeros
    return (exact / scales).round_().to(torch.int8), scales
