"""int8 weights that are mostly zero, as a bit mask and the values that are not zero.

The order is that of `packing.pack_int` by 8 bits: blocks of 64 output channels, of which kernels
hold 16 in a vector, in steps of four input channels. A vector of one step is 64 bytes, and so one
64-bit word of the mask: bit ``4 * (channel % 16) + k % 4``. The values of a block are four streams,
one for each vector, so that a reader finds a vector's next values by the bits that it has seen of
that vector alone. Where streams begin is stored for each 256 input channels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.weights.packing import BLOCK, K_MULTIPLE, U8, pack_int

#: Output channels of a vector.
VECTOR = 16
#: Vectors of a block.
VECTORS = BLOCK // VECTOR
#: Input channels of a step.
STEP = 4
#: Input channels between places from which reading can start.
SEGMENT = 256
#: Bytes behind the last value: kernels load 64 bytes from any value on.
SLACK = 64
#: The stored value of the weight zero.
ZERO = 128

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


class SparseBlocks(NamedTuple):
    """Some blocks of 64 output channels; B blocks, S segments.

    Attributes:
        mask: u64 [B, Kp / 4, 4], a one for each value that is not zero.
        values: u8, weight + 128: those of a block, vector by vector, step by step.
    """

    mask: U64
    values: U8


def segments(k: int) -> int:
    """S: segments of K input channels."""
    return -(-k // SEGMENT)


def pack_sparse(q_rows: npt.NDArray[np.int8]) -> SparseBlocks:
    """Pack signed weights int8 [n, K], n a multiple of 64 but of the last rows; padding is zero."""
    n, k = q_rows.shape
    stored = np.full((-(-n // BLOCK) * BLOCK, -(-k // K_MULTIPLE) * K_MULTIPLE), ZERO, np.uint8)
    stored[:n, :k] = q_rows.view(np.uint8) + np.uint8(ZERO)
    packed = pack_int(stored, 8)
    vectors = packed.reshape(*packed.shape[:2], VECTORS, VECTOR * STEP)
    present = vectors != ZERO
    mask = np.packbits(present, axis=-1, bitorder="little").view(np.uint64)[..., 0]
    streams, ones = vectors.transpose(0, 2, 1, 3), present.transpose(0, 2, 1, 3)
    return SparseBlocks(mask, streams[ones])


def count_nonzeros(q_rows: npt.NDArray[np.int8]) -> I64:
    """The number of values of each block, segment and vector that are not zero: int64 [B, S, 4], of
    rows as `pack_sparse` takes them."""
    n, k = q_rows.shape
    blocks, parts = -(-n // BLOCK), segments(k)
    channels = np.add.reduceat(q_rows != 0, np.arange(0, k, SEGMENT), axis=1, dtype=np.int64)
    counts = np.zeros((blocks * BLOCK, parts), np.int64)
    counts[:n] = channels
    return counts.reshape(blocks, VECTORS, VECTOR, parts).sum(axis=2).transpose(0, 2, 1)


def starts(counts: I64) -> I64:
    """The start of the values of each block, segment and vector, from `count_nonzeros` of all rows:
    int64 [B, S, 4]."""
    in_order = counts.transpose(0, 2, 1).reshape(-1)
    first = np.cumsum(in_order) - in_order
    blocks, parts, vectors = counts.shape
    return np.ascontiguousarray(first.reshape(blocks, vectors, parts).transpose(0, 2, 1))
