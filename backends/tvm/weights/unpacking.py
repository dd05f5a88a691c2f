"""The inverses of `optc.backends.tvm.weights.packing`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.weights.packing import BLOCK, F32, PLANES, U8, U16


def unpack_int(packed: U8, bits: int) -> U8:
    """The inverse of `pack_int`: u8 [64 * blocks, Kp], padding included."""
    blocks, steps = packed.shape[:2]
    fours = np.ascontiguousarray(packed).view(np.uint32).reshape(blocks, steps, BLOCK)
    rows = np.ascontiguousarray(fours.transpose(0, 2, 1)).view(np.uint8)
    rows = rows.reshape(blocks * BLOCK, steps, 4)
    low, *others = PLANES[bits]
    if not others:
        return _fields(rows, low).reshape(blocks * BLOCK, -1)
    high = others[0]
    units = rows.reshape(len(rows), -1, low // high + 1, 4)
    lows = _fields(units[:, :, :-1], low).reshape(len(rows), -1)
    return lows | _fields(units[:, :, -1], high).reshape(lows.shape) << np.uint8(low)


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
