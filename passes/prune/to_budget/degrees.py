"""The units that channels may keep, and the loss of the results of the layers that read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.linear import Linear
from optc.ir.quantized_rows import QuantizedTile
from optc.ir.weights import Array, LazyWeight, RowReader
from optc.passes.numerics.affine import RoundRows
from optc.passes.numerics.gptq.factor import factor_of
from optc.passes.numerics.gptq.rows import gptq_rows
from optc.passes.numerics.rounding import Float32, Zeros
from optc.passes.numerics.scheme import Scheme
from optc.passes.prune.structured.channels import Channels
from optc.passes.prune.structured.cut import slices_of
from optc.passes.prune.structured.obs import damped, refitted, removal_order
from optc.passes.quantize.budget.groups import rounded

Float64 = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Degree:
    """One number of units that may stay of some channels.

    Attributes:
        left: How many.
        kept: Which, ascending; all of them where nothing was measured.
        error: tr(E H Eᵀ) of what the readers' results lose, once they are fitted.
    """

    left: int
    kept: Indices
    error: float


def counts_of(channels: Channels, shares: Sequence[float], multiple: int) -> list[int]:
    """Numbers of units for shares of them, multiples of ``multiple``, all units first."""
    step = gcd(multiple, channels.units)
    steps = channels.units // step
    found = (max(1, int(Fraction(str(one)) * steps)) * step for one in shares)
    return sorted({channels.units, *found}, reverse=True)


def degrees_of(channels: Channels, counts: Sequence[int], hessian: Float64) -> list[Degree]:
    """The units of ``channels`` that stay for each count, chosen by the loss of readers' results.

    Args:
        channels: Each unit is one column of the readers.
        counts: Of units that stay, all of them first.
        hessian: E[x xᵀ] of the readers' input.
    """
    weight = np.concatenate([_rows(one) for one in channels.linears])
    whole = damped(hessian, channels.name)
    seen = np.where(hessian.diagonal() == 0, 0.0, weight)  # dead inputs go first
    order = removal_order(seen, whole, channels.units - counts[-1])
    found = []
    for left in counts:
        kept = np.setdiff1d(np.arange(channels.units), order[: channels.units - left])
        lost = weight.copy()
        lost[:, kept] -= refitted(weight, whole, kept)
        found.append(Degree(left, kept, float(np.sum((lost @ hessian) * lost))))
    return found


def without(
    channels: Channels,
    linear: Linear,
    kept: Indices,
    hessian: Float64,
    scheme: Scheme | None = None,
    *,
    gptq: bool,
) -> LazyWeight:
    """The weight of a reader that lost units: fitted, and zeros for what goes.

    Args:
        channels: What it reads.
        linear: The reader.
        kept: Units that stay.
        hessian: E[x xᵀ] of its input.
        scheme: What is left is rounded by it; None leaves it in float32.
        gptq: Whether GPTQ rounds.
    """
    weight = linear.weight
    columns = slices_of(weight.rows_shape[1], channels.units, kept)

    def fitted(start: int, stop: int) -> Array:
        rows = np.asarray(weight.read_rows(start, stop), np.float64)
        return refitted(rows, damped(hessian, linear.name), columns).astype(np.float32)

    compact = _as(weight, fitted, (weight.rows_shape[0], len(columns)))
    if scheme is not None:
        part = hessian[np.ix_(columns, columns)]
        rounder = _rounder(part, scheme.group_size, linear.name) if gptq else None
        compact = rounded(compact, scheme, rounder)

    def padded(start: int, stop: int) -> Array:
        rows = np.zeros((stop - start, weight.rows_shape[1]), np.float32)
        rows[:, columns] = compact.read_rows(start, stop)
        return rows

    return _as(weight, padded, weight.rows_shape)


def _rounder(hessian: Float64, group_size: int, name: str) -> RoundRows:
    factor = factor_of(hessian, group_size, name)

    def round_rows(
        rows: Float32, scheme: Scheme, label: str, zeros: Zeros | None = None
    ) -> QuantizedTile:
        return gptq_rows(rows, factor, scheme, label, zeros)

    return round_rows


def _rows(linear: Linear) -> Float64:
    return np.asarray(linear.weight.read_rows(0, linear.weight.rows_shape[0]), np.float64)


def _as(weight: LazyWeight, read: RowReader, shape: tuple[int, ...]) -> LazyWeight:
    return LazyWeight(
        read, shape, ir.DataType.FLOAT, weight.name or "", transposed=weight.transposed
    )
