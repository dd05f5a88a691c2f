"""Reading safetensors by rows: a validated header over a read-only memory map.

Only the rows that are asked for are touched, so that the pages of a checkpoint stay file-backed
and the kernel may drop them (format: https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.errors import InputError

Float32 = npt.NDArray[np.float32]

_HEADER_LIMIT_BYTES = 100 << 20
#: Element type as stored, by its name in the header. BF16 is read as its bits.
_STORED = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True)
class StoredTensor:
    """One float tensor of a safetensors file.

    Attributes:
        file: The file that holds it.
        name: Its name in the header.
        dtype: ``F64``, ``F32``, ``F16`` or ``BF16``.
        shape: Its shape.
        offset: First byte, from the start of the file.
    """

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @cached_property
    def _stored(self) -> npt.NDArray[Any]:
        """The tensor as stored, flat, mapped on first use."""
        count = int(np.prod(self.shape, dtype=np.int64))
        kind = np.dtype(_STORED[self.dtype])
        if count == 0:
            return np.empty(0, kind)
        size = count * kind.itemsize
        raw = np.memmap(self.file, np.uint8, "r", self.offset, (size,))
        return raw.view(np.ndarray).view(kind)

    def read_rows(self, start: int, stop: int) -> Float32:
        """Rows ``start:stop`` along axis 0 as float32, shape [stop - start, ...]."""
        width = int(np.prod(self.shape[1:], dtype=np.int64))
        bits = self._stored[start * width : stop * width]
        if self.dtype == "BF16":
            rows: Float32 = (bits.astype(np.uint32) << 16).view(np.float32)
        else:
            rows = bits.astype(np.float32)
        return rows.reshape(stop - start, *self.shape[1:])


def same_content(left: StoredTensor, right: StoredTensor) -> bool:
    """Whether both hold the same numbers, compared in pieces of 4 Mi elements."""
    if left.shape != right.shape:
        return False
    step = max(1, (4 << 20) // max(1, int(np.prod(left.shape[1:], dtype=np.int64))))
    return all(
        np.array_equal(left.read_rows(at, stop), right.read_rows(at, stop))
        for at in range(0, left.shape[0], step)
        for stop in [min(at + step, left.shape[0])]
    )


def read_header(file: Path) -> dict[str, StoredTensor]:
    """The float tensors of ``file`` by name, each checked to lie within the file.

    Raises:
        InputError: The file is unreadable, truncated or not safetensors, or an entry is
            inconsistent; the message names the file and the tensor.
    """
    header, data_start, size = _load_header(file)
    found: dict[str, StoredTensor] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        tensor = _stored_tensor(file, name, entry, data_start, size)
        if tensor is not None:
            found[name] = tensor
    return found


def _load_header(file: Path) -> tuple[dict[str, Any], int, int]:
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(size - 8, _HEADER_LIMIT_BYTES):
                raise InputError(
                    f"truncated or not a safetensors file: {size} bytes, header of {length}",
                    where=str(file),
                    hint="download it again",
                )
            header = json.loads(stream.read(length))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(file)) from error
    except ValueError as error:
        raise InputError(
            f"the safetensors header is not JSON: {error}",
            where=str(file),
            hint="download it again",
        ) from error
    if not isinstance(header, dict):
        raise InputError("the safetensors header is not an object", where=str(file))
    return header, 8 + length, size


def _stored_tensor(
    file: Path, name: str, entry: Any, data_start: int, size: int
) -> StoredTensor | None:
    """The tensor that ``entry`` describes; None for integer and boolean ones."""
    where = f"{file}: {name}"
    try:
        dtype = str(entry["dtype"])
        shape = tuple(int(d) for d in entry["shape"])
        begin, end = (int(o) for o in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("malformed entry in the safetensors header", where=where) from error
    if dtype in ("I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"):
        return None
    if dtype not in _STORED:
        raise InputError(
            f"tensors of type {dtype} are not supported",
            where=where,
            hint=f"use a checkpoint in {', '.join(_STORED)}",
        )
    expected = int(np.prod(shape, dtype=np.int64)) * np.dtype(_STORED[dtype]).itemsize
    if min(shape, default=0) < 0 or begin < 0 or end - begin != expected:
        raise InputError(
            f"{dtype} of shape {list(shape)} needs {expected} bytes, the header gives it "
            f"{end - begin}",
            where=where,
        )
    if data_start + end > size:
        raise InputError(
            f"truncated: the tensor ends at byte {data_start + end}, the file at {size}",
            where=where,
            hint="download the file again",
        )
    return StoredTensor(file, name, dtype, shape, data_start + begin)
