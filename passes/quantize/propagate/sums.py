"""Sums over the tokens of two runs of the reference: x as it was, x' as quantized layers before
leave it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from optc.reference.submodel import Array
from optc.reference.two_streams import Pair

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
#: Tokens whose products are summed in float32, before they are added in float64.
_ROWS = 2048


def hessian_of(x: Pair) -> Float64:
    """E[x' x'ᵀ], [K, K]."""
    return _mean(x.changed.shape, lambda rows: _gram(_rows(x.changed, rows)))


def drift_of(x: Pair) -> Float64:
    """E[(x - x') x'ᵀ], [K, K]."""

    def product(rows: slice) -> Array:
        changed = _rows(x.changed, rows)
        return (_rows(x.original, rows) - changed).T @ changed

    return _mean(x.changed.shape, product)


def residual_drift_of(x: Pair, residual: Pair) -> Float64:
    """E[(r - r') x'ᵀ], [D, K]."""

    def product(rows: slice) -> Array:
        gap = _rows(residual.original, rows) - _rows(residual.changed, rows)
        return gap.T @ _rows(x.changed, rows)

    return _mean(x.changed.shape, product)


def result_drift_of(weight: Float32, x: Pair, residual: Pair | None) -> Float64:
    """E[(W x + r - W x' - r') x'ᵀ], [N, K]: W times `drift_of`, and `residual_drift_of` if there is
    a residual, for less work where N is less than K."""

    def product(rows: slice) -> Array:
        changed = _rows(x.changed, rows)
        gap = (_rows(x.original, rows) - changed) @ weight.T
        if residual is not None:
            gap += _rows(residual.original, rows) - _rows(residual.changed, rows)
        return gap.T @ changed

    return _mean(x.changed.shape, product)


def _rows(values: Array, rows: slice) -> Array:
    return values.reshape(-1, values.shape[-1])[rows]


def _gram(x: Array) -> Array:
    """xᵀ x, [K, K]."""
    return x.T @ x


def _mean(shape: Iterable[int], product: Callable[[slice], Array]) -> Float64:
    """The mean over the tokens of values [W, S, K] of sums over some of them."""
    tokens = int(np.prod([*shape][:-1]))
    if not tokens:
        raise ValueError("no tokens")
    total = product(slice(0, _ROWS)).astype(np.float64)
    for at in range(_ROWS, tokens, _ROWS):
        total += product(slice(at, at + _ROWS))
    total /= tokens
    return total
