"""AWQ's search: the scale whose quantized weights change the layers' results least.

With H = E[x xᵀ], the mean square of what a layer W loses is tr(E H Eᵀ), E = Q(W diag(s)) diag(1/s)
- W: no activations are kept (Lin et al., AWQ, 2024, arXiv:2306.00978, search by running the layer).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from optc.ir.linear import Linear
from optc.ir.weights import LazyWeight
from optc.passes.numerics.affine import dequantize_rows, quantize_rows
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.smooth.scales import Float64, awq_scale

Float32 = npt.NDArray[np.float32]
#: Exponents that are tried.
ALPHAS: tuple[float, ...] = tuple(step / 20 for step in range(21))
#: Rows that are quantized at a time, and how many such tiles of a weight decide: all of a small
#: one, evenly spaced ones of a larger one. An exponent needs no more rows, and each costs K * K
#: products an exponent.
_TILE, _TILES = 64, 8


def best_scale(
    layers: Sequence[tuple[Linear, Scheme]],
    mean_x: Float64,
    channels: npt.NDArray[np.intp],
    hessian: Float64,
) -> tuple[float, Float64, float]:
    """The best exponent, its scale [C], and the layers' loss as a share of that without a scale.

    Args:
        layers: Linear layers of one input, each with the grid that it will be rounded to.
        mean_x: [C] mean magnitudes of the channels.
        channels: [K] the channel of each column.
        hessian: [K, K], E[x xᵀ].
    """
    candidates = [awq_scale(mean_x, alpha) for alpha in ALPHAS]
    columns = [scale[channels].astype(np.float32) for scale in candidates]
    losses, small = np.zeros(len(candidates)), hessian.astype(np.float32)
    for linear, scheme in layers:
        for rows in _tiles(linear.weight):
            losses += [_loss(rows, factors, scheme, small, linear.name) for factors in columns]
    best = int(losses.argmin())
    return ALPHAS[best], candidates[best], float(losses[best] / losses[0]) if losses[0] else 1.0


def _tiles(weight: LazyWeight) -> Iterator[Float32]:
    starts = range(0, weight.rows_shape[0], _TILE)
    count = min(len(starts), _TILES)
    for index in range(count):
        start = starts[index * len(starts) // count]
        stop = min(start + _TILE, weight.rows_shape[0])
        yield np.asarray(weight.read_rows(start, stop), np.float32)


def _loss(rows: Float32, factors: Float32, scheme: Scheme, hessian: Float32, name: str) -> float:
    tile = quantize_rows(rows * factors, scheme, name)
    error = dequantize_rows(tile, scheme.group_size) / factors - rows
    return float(np.sum((error @ hessian) * error, dtype=np.float64))
