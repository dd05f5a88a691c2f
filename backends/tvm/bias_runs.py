"""Biases of attention by distance, laid out for kernels.

A head's N biases become a run of N + 30 numbers: by descending distance, with the last of them 15
times before, and that of the distance 0 15 times behind. The biases of 16 tokens that follow each
other then lie side by side wherever they are, if the place of the first is brought into the run.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: Tokens of a tile of the pools.
_TILE = 16


def bias_runs(biases: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The runs [H, N + 30] of biases [H, N]."""
    return np.pad(biases[:, ::-1], ((0, 0), (_TILE - 1, _TILE - 1)), mode="edge")


def zero_distance(count: int) -> int:
    """The place of the distance 0 in a run of ``count`` numbers."""
    return count - _TILE
