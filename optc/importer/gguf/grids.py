"""Block types of GGUF that are grids which engines have: values and a scale for 32 weights.

| type | bytes of a block of 32 | values | scale |
|---|---|---|---|
| Q8_0 | scale f16, 32 values | int8 | as stored |
| Q4_0 | scale f16, 16 pairs | nibble - 8 | as stored, negative for half of the blocks |
| Q5_0 | scale f16, 32 fifth bits, 16 pairs | 5 bits - 16 | as stored |
| IQ4_NL | scale f16, 16 pairs | one of 16 int8 levels | as stored |
| MXFP4 | exponent, 16 pairs | E2M1 times 2, -12 to 12 | 2^(exponent - 128) |
| Q4_1 | scale f16, minimum f16, 16 pairs | nibble | as stored |
| Q4_K | of 8 blocks factors f16 of 6-bit scales and minimums, 16 pairs | nibble | rounded to f16 |

The low nibbles of a block's pairs are its first 16 weights. A minimum m becomes the float zero
point -m / scale. Other types have values of 6, 5 or 3 bits or groups of 16 (definitions:
ggml-quants.h and ggml-common.h of ggml).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.ir.quantized_rows import QuantizedTile

Bytes = npt.NDArray[np.uint8]
GROUP = 32
_IQ4_NL = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
#: Where scales end, in bytes of a block.
_SCALE = 2
#: Values, scales and float zero points of blocks.
_WithMinimums = tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.float32]]
#: Exponents of powers of two that float16 has.
_EXPONENTS = (-24, 15)


def bits_of(kind: str) -> int | None:
    """Bits of the values of a block type; None if its grid is none that engines have."""
    found = _GRIDS.get(kind)
    return None if found is None else found[0]


def read_tile(kind: str, rows: Bytes) -> QuantizedTile:
    """The values and scales of rows u8 [n, bytes of a row] of a type that `bits_of` knows.

    Scales are numbers of float16, as engines store them; infinite where float16 has none.
    """
    _, block_bytes, decode = _GRIDS[kind]
    blocks = rows.reshape(-1, block_bytes)
    values, scales, *zeros = decode(blocks)
    n = len(rows)
    return QuantizedTile(
        values.reshape(n, -1), scales.reshape(n, -1), zeros[0].reshape(n, -1) if zeros else None
    )


def has_minimums(kind: str) -> bool:
    """True if weights of a type that `bits_of` knows have float zero points."""
    return kind in ("Q4_1", "Q4_K")


def _floats(scales: Bytes) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(scales).view("<f2").astype(np.float32)


def _nibbles(pairs: Bytes) -> npt.NDArray[np.int8]:
    return np.concatenate([pairs & 15, pairs >> 4], axis=1).view(np.int8)


def _q8_0(blocks: Bytes) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    return np.ascontiguousarray(blocks[:, _SCALE:]).view(np.int8), _floats(blocks[:, :_SCALE])


def _q4_0(blocks: Bytes) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    return _nibbles(blocks[:, _SCALE:]) - np.int8(8), _floats(blocks[:, :_SCALE])


def _q5_0(blocks: Bytes) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    high = np.unpackbits(blocks[:, _SCALE : _SCALE + 4], axis=1, bitorder="little")
    low = _nibbles(blocks[:, _SCALE + 4 :])
    return (low | (high << 4).view(np.int8)) - np.int8(16), _floats(blocks[:, :_SCALE])


def _iq4_nl(blocks: Bytes) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    levels = np.array(_IQ4_NL, np.int8)
    return levels[_nibbles(blocks[:, _SCALE:])], _floats(blocks[:, :_SCALE])


def _mxfp4(blocks: Bytes) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    exponents = blocks[:, 0].astype(np.int32) - 128
    values = np.array(_E2M1, np.int8)[_nibbles(blocks[:, 1:])]
    # below the least scale that float16 has, blocks are zero as far as any sum goes
    values[exponents < _EXPONENTS[0]] = 0
    scales = np.ldexp(np.float32(1), np.maximum(exponents, _EXPONENTS[0]))
    return values, np.where(exponents > _EXPONENTS[1], np.float32(np.inf), scales)


def _q4_1(blocks: Bytes) -> _WithMinimums:
    scales, minimums = _floats(blocks[:, :_SCALE]), _floats(blocks[:, _SCALE : 2 * _SCALE])
    return _with_zeros(_nibbles(blocks[:, 2 * _SCALE :]).view(np.uint8), scales, minimums)


def _q4_k(blocks: Bytes) -> _WithMinimums:
    """Scales of 6 bits: the first four are the low bits of bytes 0 to 3; the others have their low
    four bits in the low halves of bytes 8 to 11 and their high two above the first four's.
    Minimums likewise, in bytes 4 to 7 and the high halves."""
    packed = blocks[:, 2 * _SCALE : 2 * _SCALE + 12]
    low, high, both = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([low & 63, (both & 15) | (low >> 6 << 4)], axis=1)
    minimums = np.concatenate([high & 63, (both >> 4) | (high >> 6 << 4)], axis=1)
    # 32 bytes hold the nibbles of two blocks, the first block's the low ones
    pairs = blocks[:, 2 * _SCALE + 12 :].reshape(-1, 4, 1, GROUP)
    values = np.concatenate([pairs & 15, pairs >> 4], axis=2).reshape(-1, GROUP)
    factor, offset = _floats(blocks[:, :_SCALE]), _floats(blocks[:, _SCALE : 2 * _SCALE])
    with np.errstate(over="ignore"):  # infinities are refused by who reads the weight
        halves = (factor * scales).astype(np.float16).astype(np.float32)
        lows = -(offset * minimums).astype(np.float16).astype(np.float32)
    return _with_zeros(values, halves.reshape(-1, 1), lows.reshape(-1, 1))


def _with_zeros(
    values: npt.NDArray[np.uint8],
    scales: npt.NDArray[np.float32],
    minimums: npt.NDArray[np.float32],
) -> _WithMinimums:
    """Blocks of values [n, 32] with a scale and a minimum [n, 1] each, with float zero points.

    A block of scale 0 is its minimum everywhere: values of 1 with that as their scale.
    """
    flat = scales == 0
    values = np.where(flat, np.uint8(1), values)
    scales = np.where(flat, minimums, scales)
    zeros = -np.where(flat, np.float32(0), minimums) / np.where(scales == 0, np.float32(1), scales)
    return values, scales, zeros.astype(np.float32)


_Decode = Callable[[Bytes], tuple[npt.NDArray[Any], ...]]
#: Bits of the values, bytes of a block, and how one is taken apart.
_GRIDS: dict[str, tuple[int, int, _Decode]] = {
    "Q8_0": (8, 34, _q8_0),
    "Q4_0": (4, 18, _q4_0),
    "Q5_0": (8, 22, _q5_0),
    "IQ4_NL": (8, 18, _iq4_nl),
    "MXFP4": (8, 17, _mxfp4),
    "Q4_1": (4, 20, _q4_1),
    "Q4_K": (4, 144, _q4_k),
}
