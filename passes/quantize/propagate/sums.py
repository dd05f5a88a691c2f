"""Sums over the tokens of two runs of a layer's inputs, and of the residuals it is added to."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from optc.reference.submodel import Array
from optc.reference.two_streams import Pair

Float64 = npt.NDArray[np.float64]
#: Tokens whose products are summed in float32, before they are added in float64.
_ROWS = 2048


@dataclass(frozen=True)
class InputSums:
    """Of inputs x [T, K] as they were, and x' [T, K] as quantized layers before them leave them.

    Attributes:
        hessian: E[x' x'ᵀ], [K, K].
        drift: E[(x - x') x'ᵀ], [K, K].
        residuals: E[(r - r') x'ᵀ], [D, K], for each of some residuals r.
    """

    hessian: Float64
    drift: Float64
    residuals: list[Float64] = field(default_factory=list)


def input_sums(inputs: Pair, residuals: list[Pair]) -> InputSums:
    """The sums over all tokens of ``inputs`` [W, S, K] and ``residuals`` [W, S, D]."""
    tokens = int(np.prod(inputs.changed.shape[:-1]))
    hessian = drift = None
    drifts: list[Float64 | None] = [None] * len(residuals)
    for rows in (slice(at, at + _ROWS) for at in range(0, tokens, _ROWS)):
        changed = _rows(inputs.changed, rows)
        hessian = _added(hessian, changed, changed)
        drift = _added(drift, _rows(inputs.original, rows) - changed, changed)
        for index, pair in enumerate(residuals):
            gap = _rows(pair.original, rows) - _rows(pair.changed, rows)
            drifts[index] = _added(drifts[index], gap, changed)
    if hessian is None or drift is None:
        raise ValueError("no tokens")
    for total in (hessian, drift, *(one for one in drifts if one is not None)):
        total /= tokens
    return InputSums(hessian, drift, [one for one in drifts if one is not None])


def _rows(values: Array, rows: slice) -> Array:
    return values.reshape(-1, values.shape[-1])[rows]


def _added(total: Float64 | None, left: Array, right: Array) -> Float64:
    product = left.T @ right
    if total is None:
        return product.astype(np.float64)
    total += product
    return total
