"""Products of a text's values in int8: a scale for each token and each weight row, exact sums.

What engines with int8 activations do, and at several times the pace of float32 where the CPU
multiplies bytes (AVX512-VNNI, AMX): oneDNN has the kernels, PyTorch brings them. Values and weights
are rounded to 8 bits, so weights should have fewer than that already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from optc.proof.reference.streams.floats import Float32, float32_tensor
from optc.proof.reference.streams.gram import Float64
from optc.proof.reference.streams.int8_gram import LARGEST, rounded_hessian
from optc.proof.reference.streams.int8_sums import rounded_sum
from optc.proof.reference.streams.products import OneDnnProducts
from optc.proof.reference.submodel import Array

if TYPE_CHECKING:
    import torch

#: Name of these products.
INT8 = "int8"
#: Values that are rounded while they lie in the cache.
_VALUES = 1 << 18
#: What stands for 0 in the bytes of values: oneDNN's kernels for weights that were packed before
#: take unsigned ones, and those for signed ones are slower by far.
_ZERO = 128
#: No operator on the results, its arguments and its kind.
_NOTHING_AFTER: tuple[str, list[float], str] = ("none", [], "")


@dataclass(frozen=True)
class Int8Rows:
    """Rows of a weight: values int8 [N, K] in oneDNN's order, scales float32 [N]."""

    values: torch.Tensor
    scales: torch.Tensor


class Int8Products(OneDnnProducts):
    """Products of int8 with scales, added as integers.

    Values that only they read are kept in bfloat16: its rounding is a tenth of theirs.
    """

    name = INT8
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)

    def weight(self, rows: Array) -> Int8Rows:
        """Rows [N, K] in int8, a scale for each."""
        import torch

        exact = float32_tensor(rows)
        scales = _scales(exact)
        values = (exact / scales).round_().to(torch.int8)
        return Int8Rows(torch.ops.onednn.qlinear_prepack(values, None), scales[:, 0].contiguous())

    def hessian(self, x: Array) -> Float64:
        """E[x xᵀ] of inputs rounded to int8 by columns (`int8_gram`)."""
        return rounded_hessian(x)

    def sum(self, left: Float32, right: Array) -> Float32:
        """leftᵀ right of values rounded to int8 by columns (`int8_sums`)."""
        return rounded_sum(left, right)

    def __call__(self, x: Array, weights: Sequence[Int8Rows]) -> list[Float32]:
        """x Wᵀ for each weight."""
        values, scales = _bytes(x.reshape(-1, x.shape[-1]))
        results = [_multiply(values, one).mul_(scales) for one in weights]
        return [one.numpy().reshape(*x.shape[:-1], one.shape[1]) for one in results]


def _multiply(values: torch.Tensor, rows: Int8Rows) -> torch.Tensor:
    """Values [T, K] as `_bytes` gives them times rows [N, K] and their scales: float32 [T, N]."""
    import torch

    zeros = torch.zeros(len(rows.scales), dtype=torch.int64)
    product: torch.Tensor = torch.ops.onednn.qlinear_pointwise(
        *(values, 1.0, _ZERO),
        *(rows.values, rows.scales, zeros, None),
        *(1.0, 0, torch.float32),
        *_NOTHING_AFTER,
    )
    return product


def _bytes(flat: Array) -> tuple[torch.Tensor, torch.Tensor]:
    """Values [T, K] rounded to nearest in uint8, `_ZERO` more than they are, and scales [T, 1]."""
    import torch

    tokens, width = flat.shape
    values, scales = torch.empty((tokens, width), dtype=torch.uint8), torch.empty((tokens, 1))
    count = max(1, _VALUES // width)
    for at in range(0, tokens, count):
        part = slice(at, at + count)
        exact = float32_tensor(flat[part])
        scales[part] = _scales(exact)
        values[part] = (exact / scales[part]).round_().add_(_ZERO)
    return values, scales


def _scales(exact: torch.Tensor) -> torch.Tensor:
    """The size [N, 1] of one step in each row of [N, K]."""
    scales = exact.abs().amax(1, keepdim=True).div_(LARGEST)
    return scales.clamp_min_(np.finfo(np.float32).tiny)  # rows of zeros
