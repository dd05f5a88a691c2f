"""Rounding to a quantizer's grid in the forward pass, straight through in the backward pass.

Bengio et al. (2013), arXiv:1308.3432; the gradient of a scale is that of learned step sizes (Esser
et al., 2020, arXiv:1902.08153), which follows from taking rounding as the identity inside the
grid's range and as a constant outside of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Grid:
    """A grid of G groups of g columns for N rows: a weight is c · (q · s − z).

    Attributes:
        scales: c, [N, 1, 1] or [N, G, 1]; float32.
        integers: s, [N, G, 1], whole numbers; None where there are none (s = 1).
        zeros: z, [N, G, 1] or [N, 1, 1], whole numbers; None where there are none (z = 0).
        least: Least q.
        most: Greatest q.
    """

    scales: Tensor
    integers: Tensor | None
    zeros: Tensor | None
    least: int
    most: int

    def codes(self, rows: Tensor) -> Tensor:
        """The q [N, G, g] nearest to weights [N, G, g], float32."""
        return self.steps(rows).round_().clamp_(self.least, self.most)

    def steps(self, rows: Tensor) -> Tensor:
        """Weights in units of q, not rounded."""
        x = rows / self.scales
        if self.zeros is not None:
            x = x + self.zeros
        return x if self.integers is None else x / self.integers

    def values(self, codes: Tensor) -> Tensor:
        """The values that codes stand for."""
        x = codes if self.integers is None else codes * self.integers
        return (x if self.zeros is None else x - self.zeros) * self.scales


class RoundToGrid(torch.autograd.Function):
    """Weights [N, G, g] on the grid; gradients for them and for the logarithms of c and s."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, log_c: Tensor, log_s: Tensor | None, grid: Grid) -> Tensor:
        """The rounded weights; ``log_c`` and ``log_s`` only take gradients."""
        x = grid.steps(rows)
        inside = (x >= grid.least - 0.5) & (x <= grid.most + 0.5)
        result = grid.values(x.round_().clamp_(grid.least, grid.most))
        ctx.save_for_backward(rows, result, inside)
        ctx.grid, ctx.shapes = grid, (log_c.shape, None if log_s is None else log_s.shape)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Straight through inside the range."""
        (gradient,) = gradients
        rows, result, inside = ctx.saved_tensors
        grid, (shape_c, shape_s) = ctx.grid, ctx.shapes
        for_rows = gradient * inside
        moved = gradient * result - for_rows * rows  # of log c, before it is summed
        by_group = moved.sum(dim=2, keepdim=True)
        for_c = by_group.sum_to_size(shape_c)
        if shape_s is None:
            return for_rows, for_c, None, None
        if grid.zeros is not None:  # q * s moves with s, z stays
            offset = grid.zeros * grid.scales
            by_group = by_group + offset * (gradient - for_rows).sum(dim=2, keepdim=True)
        return for_rows, for_c, by_group.sum_to_size(shape_s), None
