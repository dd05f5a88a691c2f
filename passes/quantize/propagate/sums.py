"""Sums over the tokens of two runs of the reference: x as it was, x' as quantized layers before
leave it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from optc.reference.streams.gram import TOKENS, Float32, Float64, add_gram, mirror
from optc.reference.streams.products import as_float32
from optc.reference.submodel import Array
from optc.reference.two_streams import Pair


def hessian_of(x: Array) -> Float64:
    """E[x' x'ᵀ], [K, K], of inputs x' [..., K]."""
    tokens, width = _tokens(x), x.shape[-1]
    total = np.zeros((width, width))
    for rows in _chunks(tokens):
        add_gram(total, _rows(x, rows))
    mirror(total)
    total /= tokens
    return total


def drift_of(x: Pair) -> Float64:
    """E[(x - x') x'ᵀ], [K, K]."""

    def product(rows: slice) -> Array:
        changed = _rows(x.changed, rows)
        gap = _rows(x.original, rows) - changed
        return gap.T @ changed

    return _mean(_tokens(x.changed), product)


def sum_drift_of(x: Array, sums: Pair, bias: Array | None) -> Float64:
    """E[(s - b - r') x'ᵀ], [N, K], of inputs x' [..., K] of a layer W [N, K].

    Args:
        x: x'.
        sums: As it is, s = W x + b + r, the sum of a residual and the layer's result; where weights
            are replaced, the residual r' alone.
        bias: b [N], if there is one.
    """

    def product(rows: slice) -> Array:
        gap = _rows(sums.original, rows) - _rows(sums.changed, rows)
        if bias is not None:
            gap -= bias
        return gap.T @ _rows(x, rows)

    return _mean(_tokens(x), product)


def _rows(values: Array, rows: slice) -> Float32:
    return as_float32(values.reshape(-1, values.shape[-1])[rows])


def _tokens(values: Array) -> int:
    tokens = int(np.prod(values.shape[:-1]))
    if not tokens:
        raise ValueError("no tokens")
    return tokens


def _chunks(tokens: int) -> Iterator[slice]:
    return (slice(at, min(at + TOKENS, tokens)) for at in range(0, tokens, TOKENS))


def _mean(tokens: int, product: Callable[[slice], Array]) -> Float64:
    """The mean over the tokens of sums over some of them."""
    first, *others = _chunks(tokens)
    total: Float64 = product(first).astype(np.float64)
    for rows in others:
        total += product(rows)
    total /= tokens
    return total
