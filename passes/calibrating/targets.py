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

from optc.passes.numerics.gptq.factor import invert_root
from optc.passes.numerics.gptq.triangular import solve_in_place
from optc.proof.reference.streams.floats import Float32
from optc.proof.reference.streams.gram import Float64

#: Tokens for each input of a layer from which on a correction is trusted. On the example model, 4
#: made the result worse than no correction, 32 better by a sixth.
TOKENS_PER_INPUT = 16


@dataclass(frozen=True)
class Correction:
    """Of one weight W [N, K]: the target is W + W ``mix`` + ``add``; None is 0.

    Attributes:
        mix: float32 [K, K].
        add: float32 [N, K].
    """

    mix: Float32 | None = None
    add: Float32 | None = None

    def target(self, rows: Float32, start: int) -> Float32:
        """The target of the rows [n, K] of W that begin at row ``start``."""
        target = rows if self.mix is None else rows + rows @ self.mix
        return target if self.add is None else target + self.add[start : start + len(rows)]


class Solver:
    """a (·) (H + d I)⁻¹ by the damping of GPTQ; inputs that are always zero get no share.

    Args:
        hessian: H = E[x' x'ᵀ], [K, K].
        strength: a.
        name: Of a weight that reads these inputs, for messages.

    Raises:
        InputError: The sums hold no squares.
    """

    def __init__(self, hessian: Float64, strength: float, name: str = "weight") -> None:
        self._strength = strength
        self._root = hessian.copy()
        invert_root(self._root, name)

    def __call__(self, left: Float64) -> Float32:
        """``left`` [M, K], solved; it is lost."""
        solve_in_place(left, self._root)
        left *= self._strength
        return left.astype(np.float32)
