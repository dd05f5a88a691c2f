"""Sums a bᵀ over some tokens in int8: a column of either has a scale of its own for these tokens.

For differences of two runs: they are small beside the values, but have scales of their own, so that
rounding moves each by the same share. Its errors are independent of each other, and so smaller in
a sum over many tokens than the sample's own: the tokens of a text are few for each input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from optc.proof.reference.streams.floats import Float32, float32_tensor
from optc.proof.reference.streams.int8_gram import LARGEST, multiply
from optc.proof.reference.submodel import Array

if TYPE_CHECKING:
    import torch

#: Values that are rounded while they lie in the cache.
_VALUES = 1 << 18


def rounded_sum(left: Array, right: Array) -> Float32:
    """leftᵀ right, [N, K], of values [T, N] and [T, K] in float32 or bfloat16."""
    (a, steps_a), (b, steps_b) = _rounded(left), _rounded(right)
    product = multiply(a.T, b).float()
    result: Float32 = product.mul_(steps_b).mul_(steps_a[:, None]).numpy()
    return result


def _rounded(flat: Array) -> tuple[torch.Tensor, torch.Tensor]:
    """Values [T, K] in int8, and what a step is worth in each column, float32 [K]."""
    import torch

    parts = list(float32_tensor(flat).split(max(1, _VALUES // flat.shape[1])))
    largest = torch.stack([part.abs().amax(0) for part in parts]).amax(0)
    steps = (largest / LARGEST).clamp_min_(np.finfo(np.float32).tiny)
    values = torch.empty(flat.shape, dtype=torch.int8)
    for part, place in zip(parts, values.split(len(parts[0])), strict=True):
        place.copy_((part / steps).round_())
    return values, steps
