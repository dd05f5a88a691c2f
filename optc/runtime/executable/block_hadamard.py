"""The block Hadamard transform of rows: an orthogonal rotation that spreads each channel over B.

A block is multiplied by Sylvester's Hadamard matrix H over √B. B is a power of four, so that √B is
a power of two and rounds nothing. Blocks lie side by side from the first channel on. Where B does
not divide the width, one more follows them, over the last B channels: x diag(s) H over √B. The
signs s are those of a bent function (Rothaus, 1976), which no Walsh function resembles; without
them the block would gather again what those before it had spread. So one size of block serves any
width, and no channel is left alone.

Rows x and weights w that are both transformed keep their products: (x T) · (w T) = x · w.
Rotations before quantization: QuaRot (Ashkboos et al., 2024, arXiv:2404.00456); the fast transform:
Fino and Algazi, 1976.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

#: Rows in float32 or float64.
Floats = npt.NDArray[Any]

#: Sizes of blocks that engines have kernels for.
BLOCKS = (16, 64, 256)
#: Values that are transformed at a time: they and their sums fill a core's cache.
_TILE = 1 << 16


def largest_block(width: int, most: int = BLOCKS[-1]) -> int:
    """The largest size of a block that is at most ``most`` and fits into ``width`` channels; 0 if
    none does."""
    return max((block for block in BLOCKS if block <= min(width, most)), default=0)


def bent_signs(block: int) -> list[int]:
    """Signs s [B] of the block over the last channels: -1 where the halves of the index's bits
    share an odd number of them."""
    side = isqrt(block)
    return [1 - 2 * ((i // side & i % side).bit_count() % 2) for i in range(block)]


def block_hadamard(x: Floats, block: int, *, inverse: bool = False) -> Floats:
    """x T of rows x [..., K], in their own type; x T⁻¹ with ``inverse``.

    Sums are those of the engines' kernels in their order: neighbours first, then values 2 apart, 4
    apart and so on, and 1/√B behind the last.

    Raises:
        ValueError: K is smaller than ``block``.
    """
    width = x.shape[-1]
    if width < block:
        raise ValueError(f"{width} channels have no block of {block}")
    found = x.copy()
    whole = width // block * block
    if inverse:
        _transform_last(found, block, inverse=True)
    found[..., :whole] = _transformed(found[..., :whole], block)
    if not inverse:
        _transform_last(found, block, inverse=False)
    return found


def _transform_last(x: Floats, block: int, *, inverse: bool) -> None:
    """The block over the last channels of x [..., K], where others do not fill K, in place."""
    width = x.shape[-1]
    if width % block == 0:
        return
    signs = np.array(bent_signs(block), x.dtype)
    last = x[..., width - block :]
    if inverse:
        last[...] = _transformed(last, block) * signs
    else:
        last[...] = _transformed(last * signs, block)


def _transformed(x: Floats, block: int) -> Floats:
    """H over √B of each ``block`` values side by side of x [..., K]."""
    rows = np.ascontiguousarray(x).reshape(-1, block)
    found = np.empty_like(rows)
    many = min(len(rows), _TILE // block)
    # Channels along the first axis: sums of neighbours are sums of whole rows, in any step.
    room = np.empty((2, block, many), rows.dtype)
    for start in range(0, len(rows), many or 1):
        tile = rows[start : start + many]
        now, then = room[:, :, : len(tile)]
        now[:] = tile.T
        for log in range(block.bit_length() - 1):
            pairs, sums = (a.reshape(-1, 2, 1 << log, len(tile)) for a in (now, then))
            np.add(pairs[:, 0], pairs[:, 1], out=sums[:, 0])
            np.subtract(pairs[:, 0], pairs[:, 1], out=sums[:, 1])
            now, then = then, now
        np.multiply(now.T, rows.dtype.type(block**-0.5), out=found[start : start + many])
    return found.reshape(x.shape)
