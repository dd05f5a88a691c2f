"""The methods by name: what each makes of a weight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optc.passes.prune.weights.admm import by_admm
from optc.passes.prune.weights.amounts import Amount
from optc.passes.prune.weights.least_squares import fit_on_mask
from optc.passes.prune.weights.masks import Float32, Mask
from optc.passes.prune.weights.scaled import Float64, scaled
from optc.passes.prune.weights.scores import by_magnitude, by_wanda
from optc.passes.prune.weights.sparsegpt import by_sparsegpt

#: Those that choose by scores, and those that change what stays, too.
CHOOSE = ("magnitude", "wanda")
CHANGE = ("sparsegpt", "admm")


@dataclass(frozen=True)
class Method:
    """A method that prunes weights.

    Attributes:
        name: One of `CHOOSE` and `CHANGE`.
        refit: Fit what stays by least squares; ``admm`` always does.
    """

    name: str
    refit: bool = False

    @property
    def reads_inputs(self) -> bool:
        """True if it needs the Hessian of the inputs."""
        return self.refit or self.name != "magnitude"

    @property
    def corrects(self) -> bool:
        """True if what stays can make up for something."""
        return self.refit or self.name in CHANGE

    def __call__(
        self, rows: Float32, hessian: Float64 | None, amount: Amount, name: str
    ) -> Float32:
        """The pruned weight of ``rows`` [N, K].

        Args:
            rows: What the weight should be.
            hessian: E[x xᵀ] of its inputs, [K, K]; None only for magnitudes.
            amount: How many are pruned.
            name: Of the weight, for messages.

        Raises:
            InputError: The Hessian cannot be used.
        """
        if hessian is None:
            return rows * by_magnitude(rows, amount)
        if self.name == "admm":
            return by_admm(rows, hessian, amount, name)
        if self.name == "sparsegpt":
            pruned = by_sparsegpt(rows, hessian, amount, name)
            return refitted(rows, hessian, pruned, pruned != 0, name) if self.refit else pruned
        wanda = self.name == "wanda"
        mask = by_wanda(rows, hessian, amount) if wanda else by_magnitude(rows, amount)
        return refitted(rows, hessian, rows * mask, mask, name) if self.refit else rows * mask


def refitted(
    rows: Float32, hessian: Float64, start: Float32, mask: Mask, name: str = "weight"
) -> Float32:
    """The weight [N, K] with zeros outside the mask whose results are nearest to those of ``rows``;
    ``start`` is a first one.

    Raises:
        InputError: The Hessian cannot be used.
    """
    problem = scaled(rows, hessian, name)
    fitted = fit_on_mask(problem.rows, problem.hessian, start * problem.scales, mask)
    return problem.unscaled(fitted)


def relative_loss(pruned: Float32, rows: Float32, hessian: Float64) -> float:
    """The share of their squares that the results lose: tr(E H Eᵀ) / tr(W H Wᵀ)."""
    narrow = hessian.astype(np.float32)
    whole, error = rows, pruned - rows
    parts = (float(np.sum((one @ narrow) * one, dtype=np.float64)) for one in (error, whole))
    lost, all_of_it = parts
    return lost / all_of_it if all_of_it else 0.0
