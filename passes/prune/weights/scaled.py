"""The problem of pruning with columns scaled so that the Hessian's diagonal is one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.passes.numerics.gptq.factor import DAMPING
from optc.passes.prune.weights.masks import Float32

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scaled:
    """A weight and the Hessian of its inputs, in other units.

    Attributes:
        rows: [N, K] W diag(s).
        hessian: [K, K] H of inputs x / s: its diagonal is one.
        scales: [K] s.
    """

    rows: Float32
    hessian: Float32
    scales: Float32

    def unscaled(self, rows: Float32) -> Float32:
        """A weight of these columns for the inputs as they are."""
        return rows / self.scales


def scaled(rows: Float32, hessian: Float64, name: str) -> Scaled:
    """The problem, H being damped as GPTQ's; inputs that are always zero count as independent.

    Raises:
        InputError: The Hessian holds infinities, NaN or negative squares.
    """
    diagonal = hessian.diagonal()
    if not np.isfinite(hessian).all() or (diagonal < 0).any():
        raise InputError(
            "the statistics of its inputs hold infinities, NaN or negative squares",
            where=name,
            hint="calibrate with another text",
        )
    sizes = diagonal + DAMPING * float(diagonal.mean())
    sizes[sizes == 0] = 1.0
    scales = np.sqrt(sizes)
    unit = hessian / scales
    unit /= scales[:, None]
    np.fill_diagonal(unit, 1.0)
    narrow = scales.astype(np.float32)
    return Scaled(rows * narrow, unit.astype(np.float32), narrow)
