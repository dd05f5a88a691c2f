"""The inverses of `optc.backends.tvm.weights.packing`, which only tests need."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.weights.packing import BLOCK, F32, U8, U16


def unpack_int(packed: U8, bits: int) -> U8:
    """The inverse of `pack_int`: u8 [64 * blocks, Kp], padding included."""
    blocks, steps = packed.shape[:2]
    fours = np.ascontiguousarray(packed).view(np.uint32).reshape(blocks, steps, BLOCK)
    rows = np.ascontiguousarray(fours.transpose(0, 2, 1)).view(np.uint8)
    rows = rows.reshape(blocks * BLOCK, steps, 4)
    low, high = {8: (8, 0), 6: (4, 2), 5: (4, 1), 4: (4, 0), 3: (2, 1), 2: (2, 0)}[bits]
    if not high:
        return _fields(rows, low).reshape(blocks * BLOCK, -1)
    units = rows.reshape(len(rows), -1, low // high + 1, 4)
    lows = _fields(units[:, :, :-1], low).reshape(len(rows), -1)
    return lows | _fields(units[:, :, -1], high).reshape(lows.shape) << low


def _fields(rows: U8, bits: int) -> U8:
    """Rows [..., 4] of packed bytes as [..., 8 / bits, 4] fields, the lowest first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return (rows[..., None, :] >> shifts) & np.uint8((1 << bits) - 1)


def unpack_columns(packed: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The inverse of `pack_columns`: [64 * blocks, G], padding included."""
    return np.ascontiguousarray(packed.transpose(0, 2, 1)).reshape(-1, packed.shape[1])


def unpack_float32(packed: F32) -> F32:
    """The inverse of `pack_float32`: [64 * blocks, K]."""
    return np.ascontiguousarray(packed.transpose(0, 2, 1)).reshape(-1, packed.shape[1])


def unpack_bfloat16(packed: U16) -> U16:
    """The inverse of `pack_bfloat16`: u16 bits [64 * blocks, K rounded up to 2]."""
    blocks, steps = packed.shape[:2]
    pairs = np.ascontiguousarray(packed).view(np.uint32).reshape(blocks, steps, BLOCK)
    rows = np.ascontiguousarray(pairs.transpose(0, 2, 1)).view(np.uint16)
    return rows.reshape(blocks * BLOCK, steps * 2)


def round_bfloat16(values: F32) -> U16:
    """The bits of finite float32 values rounded to bfloat16, ties to even; same shape."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> 16).astype(
        np.uint16
    )


def unpack_sparse(
    mask: npt.NDArray[np.uint64], first: npt.NDArray[np.int64], values: U8
) -> npt.NDArray[np.int8]:
    """The weight int8 [64 * blocks, Kp], padding included, of what `pack_sparse` and `starts` gave;
    a loop over bits."""
    blocks, steps, vectors = mask.shape
    weight = np.zeros((blocks * BLOCK, steps * 4), np.int8)
    for block in range(blocks):
        for vector in range(vectors):
            at = int(first[block, 0, vector])
            for step in range(steps):
                bits = int(mask[block, step, vector])
                for place in range(64):
                    if bits >> place & 1:
                        row = block * BLOCK + vector * 16 + place // 4
                        weight[row, step * 4 + place % 4] = int(values[at]) - 128
                        at += 1
    return weight
