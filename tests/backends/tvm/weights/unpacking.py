"""Rounding to bfloat16, and the inverse of sparse packing, which only tests need."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.weights.packing import BLOCK, F32, U8, U16


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
