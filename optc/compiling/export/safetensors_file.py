"""Writes tensors to a safetensors file, some rows at a time and several tensors side by side."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: Elements' bytes by the format's names of types.
SIZES = {"I64": 8, "I32": 4, "F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True)
class Described:
    """A tensor that is going to be written: its type in the format's words, and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * SIZES[self.dtype]


def write_safetensors(
    file: Path, tensors: Mapping[str, Described], contents: Iterator[tuple[str, Array]]
) -> None:
    """Write ``tensors``, whose contents come piece by piece, each tensor's in order.

    Raises:
        RuntimeError: The contents do not fill the tensors (an internal error).
        OSError: The file cannot be written.
    """
    positions, offset, header = dict[str, int](), 0, dict[str, Any]()
    for name, tensor in sorted(tensors.items()):
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.bytes],
        }
        positions[name] = offset
        offset += tensor.bytes
    ends = {name: header[name]["data_offsets"][1] for name in tensors}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        start = stream.tell()
        stream.truncate(start + offset)
        for name, piece in contents:
            stream.seek(start + positions[name])
            data = np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
            stream.write(data.data)
            positions[name] += data.nbytes
    if positions != ends:
        raise RuntimeError("a tensor was not filled")
