"""Tables of any levels, a scale and an offset for each group: fixed tables and learned ones.

A weight is ``s * T[q] + z``: T a table of 2^b levels, s and z real numbers of its group. That is
more than a format has room for: what is lost here bounds from below what any format with such a
table loses. A table is learned by Lloyd's iteration, where an error counts by the diagonal of the
Hessian; of a whole tensor, or of every few rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, product

import numpy as np

from benchmarks.proof.codes.layers import Float32, Layer
from optc.passes.numerics.gptq.factor import factor_of
from optc.passes.numerics.gptq.rows import round_columns
from optc.passes.numerics.two_level import channel_scales

#: Share of a group's range that the table covers, and where its middle lies, in mean steps.
CANDIDATES = tuple(product((1 - i / 20 for i in range(10)), (0.0, 0.25, -0.25, 0.5, -0.5)))
_ITERATIONS = 5
_TILE = 256


def evenly(bits: int) -> Float32:
    """Levels [2^b, 1] from -1 to 1."""
    return np.linspace(-1, 1, 1 << bits, dtype=np.float32)[:, None]


def nearest(x: Float32, table: Float32) -> Float32:
    """The nearest levels of x [g, m]; ``table`` ascends, [L, 1] or [L, m]."""
    found = np.broadcast_to(table[0], x.shape).copy()
    for low, high in pairwise(table):
        found += (x > (low + high) * np.float32(0.5)) * (high - low)
    return found


@dataclass
class Codebook:
    """Rounds columns to a table (a `Rounder`).

    Attributes:
        table: [L, 1], or [L, m] of each row.
    """

    table: Float32

    def open(self, group: int, x: Float32, weights: Float32) -> None:
        """Search the scale and offset of a group [g, m]."""
        self.scale, self.offset = self.search(x, weights)

    def round(self, w: Float32) -> tuple[Float32, Float32]:
        """Levels of a column, and what they stand for."""
        level = nearest(((w - self.offset) / self.scale)[None], self.table)[0]
        return level, level * self.scale + self.offset

    def search(self, x: Float32, weights: Float32) -> tuple[Float32, Float32]:
        """Scales and offsets [m] of the least error; then, the levels as they are, the least
        squares of both."""
        low, high = x.min(axis=0), x.max(axis=0)
        half = np.maximum((high - low) / 2, np.float32(1e-12))
        middle = (low + high) / 2
        counts = np.square(weights)[:, None]
        best = np.full(x.shape[1], np.inf, np.float32)
        scale, offset = half, middle
        for share, above in CANDIDATES:
            s = half * np.float32(share)
            z = middle + s * np.float32(2 * above / (len(self.table) - 1))
            near = nearest((x - z) / s, self.table) * s + z
            error = (counts * np.square(near - x)).sum(axis=0)
            better = error < best
            best = np.where(better, error, best)
            scale, offset = np.where(better, s, scale), np.where(better, z, offset)
        return self._fitted(x, counts, scale, offset, best)

    def _fitted(
        self, x: Float32, counts: Float32, scale: Float32, offset: Float32, error: Float32
    ) -> tuple[Float32, Float32]:
        t = nearest((x - offset) / scale, self.table)
        total = counts.sum()
        mean_t = (counts * t).sum(axis=0) / total
        mean_x = (counts * x).sum(axis=0) / total
        spread = (counts * np.square(t - mean_t)).sum(axis=0)
        s = (counts * (t - mean_t) * (x - mean_x)).sum(axis=0) / np.maximum(spread, 1e-20)
        s = np.where((spread > 0) & (s > 0), s, scale).astype(np.float32)
        z = (mean_x - s * mean_t).astype(np.float32)
        near = nearest((x - z) / s, self.table) * s + z
        better = (counts * np.square(near - x)).sum(axis=0) < error
        return np.where(better, s, scale), np.where(better, z, offset)


def learned(weight: Float32, diagonal: Float32, bits: int, group: int, rows: int) -> Float32:
    """Tables [L, N] of rows [N, K], ``rows`` of them alike, by Lloyd's iteration."""
    count = len(weight)
    x = weight.T.reshape(-1, group, count)
    table = np.repeat(evenly(bits), count, axis=1)
    owner = np.arange(count) // rows
    for _ in range(_ITERATIONS):
        sums = np.zeros((2, len(table), owner[-1] + 1))
        for index, part in enumerate(x):
            counts = diagonal[index * group : (index + 1) * group]
            s, z = Codebook(table).search(part, np.sqrt(counts))
            unit = (part - z) / s
            levels = nearest(unit, table)
            weights = counts[:, None] * np.square(s)
            for code, level in enumerate(table):
                mine = (levels == level) * weights
                np.add.at(sums[0, code], owner, (mine * unit).sum(axis=0))
                np.add.at(sums[1, code], owner, mine.sum(axis=0))
        means = sums[0] / np.maximum(sums[1], 1e-30)
        moved = np.where(sums[1][:, owner] > 0, means[:, owner], table)
        table = np.sort(moved, axis=0).astype(np.float32)
    return table


@dataclass
class IntegerCodebook(Codebook):
    """A codebook that registers can hold: a weight is ``c * (s * T[q] - z)``, T of integers from 0
    to at most 255, s an integer such that ``s * T[q]`` is a byte, z one of 0 to 128 (a `Rounder`).

    Attributes:
        channel: float32 [m], c.
    """

    channel: Float32 = field(default_factory=lambda: np.ones(1, np.float32))

    def open(self, group: int, x: Float32, weights: Float32) -> None:
        """Search the integers of a group [g, m]."""
        self.scale, self.offset = self.search(x / self.channel, weights)

    def round(self, w: Float32) -> tuple[Float32, Float32]:
        """Levels of a column, and what they stand for."""
        level, near = super().round(w / self.channel)
        return level, near * self.channel

    def search(self, x: Float32, weights: Float32) -> tuple[Float32, Float32]:
        """Scales and offsets [m], whole numbers."""
        low, high = (np.clip(one, -128, 127) for one in (x.min(axis=0), x.max(axis=0)))
        top = float(self.table.max())
        counts = np.square(weights)[:, None]
        best = np.full(x.shape[1], np.inf, np.float32)
        scale, offset = np.ones_like(best), np.zeros_like(best)
        for share, above in CANDIDATES:
            whole = (high - low) * np.float32(share) / top
            for s in (np.floor(whole), np.ceil(whole)):
                s = np.clip(s, 1, 255 // top)
                z = np.rint((low + high) / 2 + s * top * (above / (len(self.table) - 1) - 0.5))
                z = np.clip(z, -128, np.minimum(0, 127 - s * top)).astype(np.float32)
                near = nearest((x - z) / s, self.table) * s + z
                error = (counts * np.square(near - x)).sum(axis=0)
                better = error < best
                best = np.where(better, error, best)
                scale, offset = np.where(better, s, scale), np.where(better, z, offset)
        return scale, offset


def whole_levels(table: Float32, greatest: int) -> Float32:
    """A table as whole numbers from 0 to ``greatest``."""
    low, high = table.min(axis=0), table.max(axis=0)
    return np.asarray(np.rint((table - low) / (high - low) * greatest), np.float32)


def gptq(layer: Layer, table: Float32, group: int, *, whole: bool = False) -> Float32:
    """The weight of a layer after GPTQ on a table, [L, 1] or [L, N]; of whole numbers if so."""
    factor = factor_of(layer.hessian, group)
    rounded = np.empty_like(layer.weight)
    for start in range(0, len(layer.weight), _TILE):
        rows = slice(start, start + _TILE)
        own = table if table.shape[1] == 1 else table[:, rows]
        columns = np.ascontiguousarray(layer.weight[rows].T)
        if whole:
            grid: Codebook = IntegerCodebook(
                own, channel=channel_scales(columns, group, layer.names[0])
            )
        else:
            grid = Codebook(own)
        rounded[rows] = round_columns(columns, factor, group, _Near(grid)).T
    return rounded


@dataclass
class _Near:
    """Gives what levels stand for in their place: a trial stores nothing."""

    grid: Codebook

    def open(self, group: int, x: Float32, weights: Float32) -> None:
        self.grid.open(group, x, weights)

    def round(self, w: Float32) -> tuple[Float32, Float32]:
        near = self.grid.round(w)[1]
        return near, near
