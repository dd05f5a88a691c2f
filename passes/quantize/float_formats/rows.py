"""Rows of weights rounded to a `Format`, plainly or by GPTQ: pure functions of the rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optc.ir.weights import Array
from optc.passes.numerics.gptq.factor import Factor, FactorOf
from optc.passes.numerics.gptq.rows import TILE, round_columns
from optc.passes.numerics.rounding import Float32, group_ranges, sum_of_squares
from optc.passes.quantize.float_formats.formats import Format


class RoundedRows(NamedTuple):
    """Rows of a weight: a weight is value * scale * the tensor's scale.

    Attributes:
        values: float32 [n, K], values of the format.
        scales: float32 [n, G] as they are stored, a column for each group.
    """

    values: Float32
    scales: Float32

    def wide(self, whole: float = 1.0) -> Float32:
        """float32 [n, K]: what they stand for; ``whole`` is the tensor's scale."""
        scales = self.scales * np.float32(whole)
        n, groups = scales.shape
        found: Float32 = self.values.reshape(n, groups, -1) * scales[..., None]
        return found.reshape(self.values.shape)


def round_rows(
    rows: Array,
    form: Format,
    *,
    whole: float = 1.0,
    factor: FactorOf | None = None,
    name: str = "weight",
) -> RoundedRows:
    """Rows [n, K] rounded to a format. A row's result depends on that row, ``whole`` and the factor
    alone, to the bit.

    Args:
        rows: K is a multiple of the format's group size.
        form: What is rounded to.
        whole: The scale of the tensor, which all others are multiplied by.
        factor: Gives that of the Hessian of the weight's inputs, for the format's group size: by
            GPTQ. None: each weight to the nearest value.
        name: Of the weight, for messages.

    Raises:
        InputError: ``rows`` holds infinities or NaN.
    """
    wide = rows.astype(np.float32, copy=False)
    if factor is None:
        return _plainly(wide, form, whole, name)
    known = factor()
    parts = [
        _by_gptq(wide[at : at + TILE], form, whole, known, name) for at in range(0, len(wide), TILE)
    ]
    return RoundedRows(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _plainly(rows: Float32, form: Format, whole: float, name: str) -> RoundedRows:
    n, columns = rows.shape
    size = form.group_size or columns
    x = np.ascontiguousarray(rows.reshape(-1, size).T)
    scales = _search(x, form, np.float32(whole), None, name)
    values = form.nearest(_ratio(x, scales * np.float32(whole)))
    return RoundedRows(values.T.reshape(n, columns), scales.reshape(n, -1))


def _by_gptq(rows: Float32, form: Format, whole: float, factor: Factor, name: str) -> RoundedRows:
    """At most `TILE` rows, with rows of zeros behind them."""
    columns = np.zeros((rows.shape[1], TILE), np.float32)
    columns[:, : len(rows)] = rows.T
    size = form.group_size or len(columns)
    grid = _FormatGrid(form, np.float32(whole), (len(columns) // size, TILE), name)
    values = round_columns(columns, factor, size, grid)
    return RoundedRows(values.T[: len(rows)].copy(), grid.scales.T[: len(rows)].copy())


class _FormatGrid:
    """A `Rounder` to a format."""

    def __init__(self, form: Format, whole: np.float32, shape: tuple[int, int], name: str) -> None:
        self._form, self._whole, self._name = form, whole, name
        self.scales = np.zeros(shape, np.float32)
        self._scale = self.scales[0]

    def open(self, group: int, x: Float32, weights: Float32) -> None:
        self.scales[group] = _search(x, self._form, self._whole, weights, self._name)
        self._scale = self.scales[group] * self._whole

    def round(self, w: Float32) -> tuple[Float32, Float32]:
        values = self._form.nearest(_ratio(w, self._scale))
        return values, values * self._scale


def _search(
    x: Float32, form: Format, whole: np.float32, weights: Float32 | None, name: str
) -> Float32:
    """The scales [m] of groups x [g, m], a group a column, of the least squared error; the first of
    equals. Errors in a row of x count as the square of its weight [g]."""
    low, high = group_ranges(x, name)
    peak: Float32 = np.divide(np.maximum(high, -low), whole)
    candidates = list(form.scales(peak))
    best = candidates[0]
    if len(candidates) == 1:
        return best
    least = _error(x, best * whole, form, weights)
    for scale in candidates[1:]:
        error = _error(x, scale * whole, form, weights)
        best = np.where(error < least, scale, best)
        np.minimum(error, least, out=least)
    return best


def _error(x: Float32, scale: Float32, form: Format, weights: Float32 | None) -> Float32:
    lost = form.nearest(_ratio(x, scale))
    lost *= scale
    lost -= x
    if weights is not None:
        lost *= weights[:, None]
    return sum_of_squares(lost)


def _ratio(x: Float32, scale: Float32) -> Float32:
    """x in units of its scale; as it is where that is 0, which nothing but 0 is a multiple of."""
    ratio: Float32 = np.divide(x, np.where(scale == 0, np.float32(1), scale))
    return ratio
