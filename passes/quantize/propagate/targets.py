"""Targets: what a weight should have been, for the inputs that it gets.

A layer W gets x' instead of x, and what it gives is added to a residual r' instead of r. The weight
that makes up for both best, by least squares over a text, is

    W + a * (W E[(x - x') x'ᵀ] + E[(r - r') x'ᵀ]) (E[x' x'ᵀ] + d I)⁻¹

for a = 1 (Arai and Ichikawa, QEP, 2025, arXiv:2504.09629, for the first term, and the strength a;
Li et al., GPTAQ, 2025, arXiv:2504.02692, solve the same problem while they round). The second term
repairs the residual stream's error so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.ir.weights import LazyWeight
from optc.passes.quantize.gptq.factor import DAMPING
from optc.passes.quantize.propagate.sums import Float64, InputSums

Float32 = npt.NDArray[np.float32]
#: Rows that are computed together, if need be with rows of zeros: products of one shape, so that a
#: row does not depend on which ones are read with it.
_TILE = 256


@dataclass(frozen=True)
class Correction:
    """Of one weight W [N, K]: the target is W + W ``mix`` + ``add``.

    Attributes:
        mix: float32 [K, K].
        add: float32 [N, K]; None is 0.
    """

    mix: Float32
    add: Float32 | None = None

    def target(self, weight: LazyWeight) -> LazyWeight:
        """The corrected weight, computed as it is read; the bits of a row are always the same."""
        last = weight.rows_shape[0]

        def read(start: int, stop: int) -> Float32:
            first = start // _TILE * _TILE
            tiles = [
                self._tile(weight, at, min(at + _TILE, last)) for at in range(first, stop, _TILE)
            ]
            return np.concatenate(tiles)[start - first : stop - first]

        from onnx_ir import DataType

        return LazyWeight(
            read,
            weight.rows_shape,
            DataType.FLOAT,
            weight.name or "",
            transposed=weight.transposed,
        )

    def _tile(self, weight: LazyWeight, start: int, stop: int) -> Float32:
        rows = np.zeros((_TILE, weight.rows_shape[1]), np.float32)
        rows[: stop - start] = weight.read_rows(start, stop)
        target = rows + rows @ self.mix
        if self.add is not None:
            target[: stop - start] += self.add[start:stop]
        return target[: stop - start]


def mix_of(sums: InputSums, strength: float) -> Float32:
    """`Correction.mix` of all weights that read one input."""
    return _solved(sums.drift, sums.hessian, strength)


def add_of(sums: InputSums, index: int, strength: float) -> Float32:
    """`Correction.add` of the weight whose result is added to residual ``index`` of the sums."""
    return _solved(sums.residuals[index], sums.hessian, strength)


def _solved(left: Float64, hessian: Float64, strength: float) -> Float32:
    """strength * left (hessian + d I)⁻¹ by the damping of GPTQ; inputs that are always zero get no
    share."""
    damped = hessian.copy()
    mean = float(hessian.diagonal().mean())
    np.fill_diagonal(damped, hessian.diagonal() + DAMPING * (mean or 1.0))
    solved = np.linalg.solve(damped, left.T).T
    return np.ascontiguousarray(strength * solved, np.float32)
