"""Tensors of the model computed from trained parameters: in full, as LoRA, or rounded."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from optc.compiling.training.rounding import Grid, RoundToGrid
from optc.ir.quantized_rows import QuantizedTile
from optc.ir.weights import Array

#: Share of exact zeros from which on a matrix is taken as pruned: its zeros stay.
PRUNED_SHARE = 1 / 16
#: Largest magnitude that float16 holds, which scales of groups are stored in.
_FLOAT16_MAX = 65504.0
_FLOAT16_TINY = 2.0**-24


#: Greatest code of grids whose integer scales are trained: of 2 and 3 bits they are some tens; of
#: more bits they are so small that the next one is a leap.
_FEW_CODES = 7
#: How far from its code a weight may be at the start, in steps: at the edge of what rounds to it,
#: the first steps of training would undo what GPTQ won.
_ROOM = 0.25


class Weight(nn.Module):
    """A tensor, computed anew for each step."""

    def forward(self) -> Tensor:
        """The values as they are used, by rows."""
        raise NotImplementedError  # pragma: no cover - abstract

    def trained(self) -> Iterable[nn.Parameter]:
        """The parameters that are trained at the learning rate."""
        return ()

    def scales(self) -> Iterable[nn.Parameter]:
        """The parameters that are trained at a multiple of it: logarithms of scales."""
        return ()


class FullWeight(Weight):
    """The values themselves; zeros of a pruned matrix stay zero.

    Args:
        rows: The values at the start.
        trained: Whether they are trained.
    """

    def __init__(self, rows: Tensor, *, trained: bool = False) -> None:
        super().__init__()
        self.rows = nn.Parameter(rows, requires_grad=trained)
        if trained and (mask := pruned_mask(rows)) is not None:
            self.register_buffer("mask", mask, persistent=False)
            self.rows.register_hook(lambda gradient: gradient * self.mask)

    def forward(self) -> Tensor:
        """The values."""
        return self.rows

    def trained(self) -> Iterable[nn.Parameter]:
        """The values, if they are trained."""
        return (self.rows,) if self.rows.requires_grad else ()


class LoraWeight(Weight):
    """Values that stay, and a trained product of two narrow matrices (Hu et al., 2021,
    arXiv:2106.09685), which is zero at the start; zeros of a pruned matrix stay zero.

    Args:
        rows: [N, K] values at the start.
        rank: Width of the matrices; what they add is scaled by 2.
        seed: Of the first matrix.
    """

    def __init__(self, rows: Tensor, rank: int, seed: int) -> None:
        super().__init__()
        n, k = rows.shape
        drawn = torch.randn(rank, k, generator=torch.Generator().manual_seed(seed))
        self.rows = nn.Parameter(rows, requires_grad=False)
        self.a = nn.Parameter(drawn.to(rows.device) / math.sqrt(k))
        self.b = nn.Parameter(torch.zeros(n, rank, device=rows.device))
        self.register_buffer("mask", pruned_mask(rows), persistent=False)

    def forward(self) -> Tensor:
        """The sum."""
        change = 2.0 * (self.b @ self.a)
        return self.rows + (change if self.mask is None else change * self.mask)

    def trained(self) -> Iterable[nn.Parameter]:
        """The two matrices."""
        return self.a, self.b


class RoundedWeight(Weight):
    """Values that are rounded to a quantizer's grid as they are used; the values, the float scales
    and the integer scales of groups of 2 and 3 bits are trained, zero points stay.

    At the start the rounded values are those of ``tile``, whatever ``rows`` are: a value that would
    round to another code is moved to the nearest one that does not.

    Args:
        rows: [N, K] values before they were rounded.
        tile: All rows, rounded: the grid, and the codes at the start.
        limits: Least and greatest code.
        group_size: Columns that share a scale; 0 is all.
    """

    def __init__(
        self, rows: Tensor, tile: QuantizedTile, limits: tuple[int, int], group_size: int
    ) -> None:
        super().__init__()
        n, k = rows.shape
        self._shape = (n, k // (group_size or k), group_size or k)
        self._limits, self._in_groups = limits, bool(group_size)
        self.kind = tile
        codes = _floats(tile.values).view(self._shape)
        scales = _floats(tile.scales).view(n, -1, 1)
        self.register_buffer("first_scales", scales)
        for name, part in (("zeros", tile.zero_points), ("integers", tile.group_scales)):
            value = None if part is None else _floats(part).view(n, -1, 1)
            self.register_buffer(name, value)
        self.log_c = nn.Parameter(torch.zeros_like(scales))
        learns = self.integers is not None and limits[1] <= _FEW_CODES
        self.log_s = nn.Parameter(torch.zeros(*self._shape[:2], 1)) if learns else None
        grid = self.grid()
        self.rows = nn.Parameter(_kept_near(rows.view(self._shape), codes, grid))

    def forward(self) -> Tensor:
        """The rounded values [N, K]."""
        n, groups, size = self._shape
        rounded = RoundToGrid.apply(self.rows, self.log_c, self.log_s, self.grid())
        return rounded.view(n, groups * size)

    @torch.no_grad()
    def grid(self) -> Grid:
        """The grid as it is stored: float scales of groups in float16, integer ones whole numbers
        with which all values stay within int8."""
        scales = self.first_scales * self.log_c.exp()
        if self._in_groups and self.integers is None:
            scales = scales.clamp(_FLOAT16_TINY, _FLOAT16_MAX).half().float()
        integers = self.integers
        if integers is not None and self.log_s is not None:
            greatest = torch.floor((127 + self.zeros) / self._limits[1]).clamp_(min=1)
            integers = torch.round(integers * self.log_s.exp()).clamp_(min=1).minimum(greatest)
        return Grid(scales, integers, self.zeros, *self._limits)

    @torch.no_grad()
    def tile(self) -> QuantizedTile:
        """Codes and scales as they are now, of the types and shapes of the tile at the start."""
        grid, kind = self.grid(), self.kind
        codes = grid.codes(self.rows).reshape(kind.values.shape)
        integers = kind.group_scales
        if integers is not None and grid.integers is not None:
            integers = grid.integers.reshape(integers.shape).cpu().numpy().astype(integers.dtype)
        return QuantizedTile(
            codes.cpu().numpy().astype(kind.values.dtype),
            grid.scales.reshape(kind.scales.shape).cpu().numpy().copy(),
            kind.zero_points,
            integers,
        )

    def trained(self) -> Iterable[nn.Parameter]:
        """The values."""
        return (self.rows,)

    def scales(self) -> Iterable[nn.Parameter]:
        """Logarithms of the scales over those at the start."""
        return (self.log_c,) if self.log_s is None else (self.log_c, self.log_s)


def pruned_mask(rows: Tensor) -> Tensor | None:
    """The mask of a pruned matrix, True where it is not zero; None of one that is not pruned."""
    kept = rows != 0
    if rows.ndim != 2 or kept.float().mean().item() > 1 - PRUNED_SHARE:
        return None
    return kept


def _floats(array: Array) -> Tensor:
    return torch.from_numpy(np.array(array, np.float32))


def _kept_near(rows: Tensor, codes: Tensor, grid: Grid) -> Tensor:
    """The values nearest to ``rows`` within `_ROOM` of a step around ``codes``; in [N, G, g]."""
    x = grid.steps(rows)
    return grid.values(torch.minimum(torch.maximum(x, codes - _ROOM), codes + _ROOM))
