"""Sums of x xᵀ over tokens: half of them is computed, for they are symmetric.

Products are float32, sums of them float64: products in bfloat16 summed, or a float32 sum over many
tokens, need not be positive definite.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
#: Rows of the result that are computed at once, what is left of the diagonal's block apart.
BLOCK = 1024
#: Tokens whose products are summed in float32, before they are added in float64.
TOKENS = 4096


def add_gram(total: Float64, x: Float32) -> None:
    """Add xᵀ x of values [T, K] to ``total`` [K, K]: the blocks on its diagonal and above."""
    size = len(total)
    for at in range(0, size, BLOCK):
        here = slice(at, min(at + BLOCK, size))
        total[here, at:] += x[:, here].T @ x[:, at:]


def mirror(total: Float64) -> None:
    """Copy what is above the diagonal below it.

    That goes for the diagonal's blocks too: not every CPU's products are symmetric to the bit.
    """
    for at in range(0, len(total), BLOCK):
        here = slice(at, at + BLOCK)
        total[here, :at] = total[:at, here].T
        total[here, here] = np.triu(total[here, here]) + np.triu(total[here, here], 1).T
