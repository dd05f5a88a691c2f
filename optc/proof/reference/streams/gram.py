"""Sums of x xᵀ over tokens: half of them is computed, for they are symmetric.

They are multiplied on the device that the reference runs on. Products are float32, sums of them
float64: products in bfloat16 summed, or a float32 sum over many
tokens, need not be positive definite.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from optc.proof.reference.execution.device import CPU, device_now
from optc.proof.reference.streams.floats import Float32, as_float32, float32_tensor
from optc.proof.reference.submodel import Array

Float64 = npt.NDArray[np.float64]
#: Rows of the result that are computed at once, what is left of the diagonal's block apart.
BLOCK = 1024
#: Tokens whose products are summed in float32, before they are added in float64.
TOKENS = 4096


def hessian_of(x: Array) -> Float64:
    """E[x xᵀ], [K, K], of values x [..., K] in float32 or bfloat16.

    Raises:
        ValueError: There are no tokens.
    """
    flat = x.reshape(-1, x.shape[-1])
    total = np.zeros((flat.shape[1], flat.shape[1]))
    for rows in token_chunks(flat):
        add_gram(total, as_float32(flat[rows]))
    mirror(total)
    total /= len(flat)
    return total


def sum_of(left: Float32, right: Array) -> Float32:
    """leftᵀ right, [N, K], of values of some tokens [T, N] and [T, K] in float32 or bfloat16."""
    rows = as_float32(right)
    if device_now() != CPU:
        a, b = (float32_tensor(one).to(device_now()) for one in (left, rows))
        found: Float32 = (a.T @ b).cpu().numpy()
        return found
    result: Float32 = left.T @ rows
    return result


def token_chunks(flat: Array) -> Iterator[slice]:
    """Tokens of ``flat`` [T, K] whose products are summed at once.

    Raises:
        ValueError: There are none.
    """
    if not len(flat):
        raise ValueError("no tokens")
    return (slice(at, min(at + TOKENS, len(flat))) for at in range(0, len(flat), TOKENS))


def add_gram(total: Float64, x: Float32) -> None:
    """Add xᵀ x of values [T, K] to ``total`` [K, K]: the blocks on its diagonal and above."""
    size, device = len(total), device_now()
    moved = None if device == CPU else float32_tensor(x).to(device)
    for at in range(0, size, BLOCK):
        here = slice(at, min(at + BLOCK, size))
        if moved is None:
            total[here, at:] += x[:, here].T @ x[:, at:]
        else:
            total[here, at:] += (moved[:, here].T @ moved[:, at:]).cpu().numpy()


def mirror(total: Float64) -> None:
    """Copy what is above the diagonal below it.

    That goes for the diagonal's blocks too: not every CPU's products are symmetric to the bit.
    """
    for at in range(0, len(total), BLOCK):
        here = slice(at, at + BLOCK)
        total[here, :at] = total[:at, here].T
        total[here, here] = np.triu(total[here, here]) + np.triu(total[here, here], 1).T
