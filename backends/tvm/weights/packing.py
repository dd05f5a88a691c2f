"""Weights in the memory layouts of the CPU kernels, tile by tile (docs/normal-form.md).

Rows are output channels. Every function takes some of them, from a multiple of 64 on, and pads the
last block of 64; so a weight is packed as a stream and blocks are simply written one after another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: Output channels of one block.
BLOCK = 64
#: K is padded to a multiple of this.
K_MULTIPLE = 32

#: Of a value's bits, which lie in rows of their own, the lowest first: of 6, four and then two. A
#: row has 256 bytes, each of which has as many fields as fit in: four input channels of 64 output
#: channels.
PLANES = {8: (8,), 6: (4, 2), 5: (4, 1), 4: (4,), 3: (2, 1), 2: (2,)}

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
F32 = npt.NDArray[np.float32]


def _pad(rows: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """Zeros added below to a multiple of 64 rows and right to ``width`` columns."""
    n, k = rows.shape
    below = -n % BLOCK
    if not below and width == k:
        return rows
    return np.pad(rows, ((0, below), (0, width - k)))


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def pack_int(q_rows: U8, bits: int) -> U8:
    """Pack unsigned offset weights.

    Args:
        q_rows: u8 [n, K], the stored values: w + 128 (or the asymmetric value) for 8 bits,
            w + 8 (or the asymmetric value), 0..15, for 4 bits, the asymmetric value for others.
        bits: 8, 6, 5, 4, 3 or 2.

    Returns:
        u8 [n/64, Kp * bits / 32, 64, 4], n/64 rounded up. 8 bits: a row has input channels
        k..k+3. 4 bits: k..k+3 in low nibbles and k+4..k+7 in high nibbles. 2 bits: k..k+3 lowest,
        up to k+12..k+15. Others are rows of their low bits (`PLANES`), then one row with the high
        bits of the same channels: 6 bits of 16 channels are two rows of nibbles and one of pairs;
        5, of 32, four of nibbles and one of single bits; 3, of 32, two of pairs and one of bits.
    """
    padded = _pad(q_rows, _round_up(q_rows.shape[1], K_MULTIPLE))
    planes, low, parts = PLANES[bits], 0, []
    for plane in planes:
        field = padded
        if len(planes) > 1:
            field = (padded >> np.uint8(low)) & np.uint8((1 << plane) - 1)
        parts.append(_fields(field, plane).reshape(len(padded), -1, plane // min(planes)))
        low += plane
    fours = np.concatenate(parts, axis=2).reshape(len(padded), -1)
    blocks = fours.reshape(-1, BLOCK, fours.shape[1])
    packed = np.ascontiguousarray(blocks.transpose(0, 2, 1)).view(np.uint8)
    return packed.reshape(len(blocks), fours.shape[1], BLOCK, 4)


def _fields(values: U8, bits: int) -> npt.NDArray[np.uint32]:
    """Values u8 [n, Kp] of so many bits as words [n, Kp * bits / 32], four values in each field of
    the words' bytes, the first ones lowest."""
    packed, width = np.ascontiguousarray(values), bits
    while width < 8:  # halves are put together until fields fill the bytes
        # Little endian: the low half of eight bytes holds k..k+3.
        eights = packed.view(np.uint64)
        packed = (eights | (eights >> np.uint64(32 - width))).astype(np.uint32).view(np.uint8)
        width *= 2
    return packed.view(np.uint32)


def pack_columns(values: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Pack scales or zero points.

    Args:
        values: [n] per channel or [n, G] with groups.
        dtype: float32 per channel, float16 with groups, uint8 for zero points.

    Returns:
        [n/64, G, 64] of ``dtype``, n/64 rounded up; padding is 0.
    """
    columns = values.reshape(len(values), -1)
    padded = _pad(columns, columns.shape[1]).astype(dtype)
    blocks = padded.reshape(-1, BLOCK, columns.shape[1])
    return np.ascontiguousarray(blocks.transpose(0, 2, 1))


def pack_groups(scales: U8, offsets: U8) -> U8:
    """Pack the integer scales and offsets u8 [n, G] of groups into [n/64, G, 2, 64]."""
    return np.stack([pack_columns(part, np.uint8) for part in (scales, offsets)], axis=2)


def pack_float32(rows: F32) -> F32:
    """Pack float32 rows [n, K] into [n/64, K, 64], n/64 rounded up."""
    padded = _pad(rows, rows.shape[1])
    return np.ascontiguousarray(padded.reshape(-1, BLOCK, rows.shape[1]).transpose(0, 2, 1))


def pack_bfloat16(rows: U16) -> U16:
    """Pack bfloat16 rows, given by their bits u16 [n, K], into u16 [n/64, K/2, 64, 2].

    K is padded to an even number and n to a multiple of 64 with zeros.
    """
    padded = _pad(rows, _round_up(rows.shape[1], 2))
    pairs = np.ascontiguousarray(padded).view(np.uint32)
    blocks = pairs.reshape(-1, BLOCK, pairs.shape[1]).transpose(0, 2, 1)
    packed = np.ascontiguousarray(blocks).view(np.uint16)
    return packed.reshape(len(blocks), pairs.shape[1], BLOCK, 2)
