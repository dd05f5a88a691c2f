"""The rotation of `optc.runtime.executable.block_hadamard` as a matrix, made from its
definition."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def rotation(width: int, block: int) -> npt.NDArray[np.float64]:
    """T [K, K] of rows x [K] that become x T: blocks side by side, then one over the last channels
    if they are not whole blocks."""
    signs = [[(-1) ** (i & j).bit_count() for j in range(block)] for i in range(block)]
    one = np.array(signs) / np.sqrt(block)
    count = width // block
    side_by_side = np.eye(width)
    side_by_side[: count * block, : count * block] = np.kron(np.eye(count), one)
    behind = np.eye(width)
    if width % block:
        side = int(np.sqrt(block))
        bent = [(-1) ** (i // side & i % side).bit_count() for i in range(block)]
        behind[-block:, -block:] = np.diag(bent) @ one
    return side_by_side @ behind
