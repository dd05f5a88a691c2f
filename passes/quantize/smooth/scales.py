"""Scales of channels: x / s and diag(s) W, by what is known of the channels of x and of W.

Channels without anything to balance, whose inputs or weights are all zero, get the scale 1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


def smoothquant_scale(largest_x: Float64, largest_w: Float64, alpha: float) -> Float64:
    """max|x_j|^a / max|w_j|^(1-a), with the geometric mean 1 (Xiao et al., SmoothQuant, 2023,
    arXiv:2211.10438, equation 4).

    Args:
        largest_x: [C] largest magnitudes of the inputs.
        largest_w: [C] largest magnitudes of the weights' columns.
        alpha: How much of the inputs' difficulty goes into the weights, 0 to 1.
    """
    live = (largest_x > 0) & (largest_w > 0)
    logs = alpha * np.log(largest_x[live]) - (1 - alpha) * np.log(largest_w[live])
    return _scale(live, logs - logs.mean() if logs.size else logs)


def awq_scale(mean_x: Float64, alpha: float) -> Float64:
    """mean|x_j|^a, its largest times its least 1 (Lin et al., AWQ, 2024, arXiv:2306.00978).

    Args:
        mean_x: [C] mean magnitudes of the inputs.
        alpha: 0 is no scale.
    """
    live = mean_x > 0
    logs = alpha * np.log(mean_x[live])
    return _scale(live, logs - (logs.max() + logs.min()) / 2 if logs.size else logs)


def _scale(live: npt.NDArray[np.bool_], logs: Float64) -> Float64:
    scale = np.ones(len(live))
    scale[live] = np.exp(logs)
    return scale
