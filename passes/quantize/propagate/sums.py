"""Sums over the tokens of two runs of the reference: x as it was, x' as quantized layers before
leave it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optc.proof.reference.streams.floats import Float32, as_float32
from optc.proof.reference.streams.gram import Float64, sum_of, token_chunks
from optc.proof.reference.streams.products import Products
from optc.proof.reference.submodel import Array
from optc.proof.reference.two_streams import Pair


def drift_of(x: Pair, products: Products | None = None) -> Float64:
    """E[(x - x') x'ᵀ], [K, K], by ``products``; by none, of products in float32."""
    changed, original = _flat(x.changed), _flat(x.original)
    multiply = sum_of if products is None else products.sum

    def product(rows: slice) -> Float32:
        now = as_float32(changed[rows])
        gap: Float32 = as_float32(original[rows]) - now
        return multiply(gap, now)

    return _mean(changed, product)


def result_drift_of(
    x: Array, sums: Pair, weight: Float32, bias: Float32 | None, products: Products
) -> Float64:
    """E[(s - r' - W x' - b) x'ᵀ], [N, K]: what the result of a layer and a residual lack together.

    The differences are taken before they are summed: they are small beside s, and sums of s and of
    W x' would have to be exact to many digits.

    Args:
        x: x' [..., K].
        sums: As it is, s = W x + b + r [..., N], the sum of a residual and the layer's result;
            where weights are replaced, the residual r' alone.
        weight: W [N, K].
        bias: b [N], if there is one.
        products: Multiplies W x', and the differences by x'.
    """
    inputs, changed, original = _flat(x), _flat(sums.changed), _flat(sums.original)
    known = products.weight(weight)

    def product(rows: slice) -> Float32:
        gap: Float32 = as_float32(original[rows]) - as_float32(changed[rows])
        gap -= products(inputs[rows], [known])[0]
        if bias is not None:
            gap -= bias
        return products.sum(gap, inputs[rows])

    return _mean(inputs, product)


def _flat(values: Array) -> Array:
    return values.reshape(-1, values.shape[-1])


def _mean(tokens: Array, product: Callable[[slice], Float32]) -> Float64:
    """The mean over the tokens of sums over some of them."""
    first, *others = token_chunks(tokens)
    total: Float64 = product(first).astype(np.float64)
    for rows in others:
        total += product(rows)
    total /= len(tokens)
    return total
