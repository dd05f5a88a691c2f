"""Reads the pixels of a PNG file of eight bits a channel (ISO/IEC 15948)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]


def pixels(data: bytes) -> Pixels:
    """[height, width, 3] red, green and blue."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    parts = list(_chunks(data))
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", parts[0][1])
    assert (depth, interlaced) == (8, 0)
    channels = {2: 3, 6: 4}[kind]
    raw = zlib.decompress(b"".join(body for name, body in parts if name == b"IDAT"))
    rows = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * channels)
    above = np.zeros(width * channels, np.uint8)
    result = np.empty((height, width * channels), np.uint8)
    for index, row in enumerate(rows):
        above = result[index] = _unfiltered(int(row[0]), row[1:], above, channels)
    return result.reshape(height, width, channels)[:, :, :3]


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += 12 + length


def _unfiltered(kind: int, row: Pixels, above: Pixels, channels: int) -> Pixels:
    """A row before it was filtered; of kinds 1, 3 and 4 each pixel depends on the one before."""
    if kind == 0:
        return row
    if kind == 2:
        return row + above
    out = np.zeros(len(row) + channels, np.int64)
    up = np.concatenate([np.zeros(channels, np.int64), above.astype(np.int64)])
    if kind == 1:
        by_pixel = row.reshape(-1, channels).astype(np.int64)
        return (np.cumsum(by_pixel, axis=0) % 256).astype(np.uint8).reshape(-1)
    for i, value in enumerate(row.tolist(), start=channels):
        left, over, corner = int(out[i - channels]), int(up[i]), int(up[i - channels])
        out[i] = (value + (_mean(left, over) if kind == 3 else _paeth(left, over, corner))) % 256
    return out[channels:].astype(np.uint8)


def _mean(left: int, over: int) -> int:
    return (left + over) // 2


def _paeth(left: int, over: int, corner: int) -> int:
    distances = [abs(over - corner), abs(left - corner), abs(left + over - 2 * corner)]
    return (left, over, corner)[distances.index(min(distances))]
