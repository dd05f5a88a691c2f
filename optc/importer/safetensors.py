"""Reading safetensors by rows: a validated header over a read-only memory map.

Only the rows that are asked for are touched, so that the pages of a checkpoint stay file-backed
and the kernel may drop them (format: https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import math
import os
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.ir.stacked_weights import Box
from optc.system.foreign.file import open_file
from optc.system.safe_json import JSONError, parse_json

Float32 = npt.NDArray[np.float32]

#: As the format's own library.
_HEADER_LIMIT_BYTES = 100_000_000
#: More axes than any weight has; the product of a million of them would take long.
_MOST_AXES = 16
#: Element type as stored, by its name in the header. BF16 is read as its bits.
_STORED = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
#: Types of floats that are read as numbers.
STORED_TYPES = frozenset(_STORED)
#: Integers and truth values: of them, and of the floats of 8 bits, only quantized weights are made.
_OTHERS = {
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "u1",
}
_EIGHT_BITS = {"F8_E4M3": "u1", "F8_E8M0": "u1"}
_KINDS = _STORED | _OTHERS | _EIGHT_BITS
#: Bytes of an element, of every type that may lie in a file.
_BYTES = {name: np.dtype(kind).itemsize for name, kind in _KINDS.items()}
_AGAIN = "download the file again"
_WRITE_AGAIN = "write it again with the safetensors library"


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a safetensors file, or of another one that holds its bytes.

    Attributes:
        file: The file that holds it.
        name: Its name in the header.
        dtype: ``F64``, ``F32``, ``F16`` or ``BF16``, which can be read as numbers, or another type,
            of which only the stored elements can be had.
        shape: Its shape.
        offset: First byte, from the start of the file.
    """

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def bytes(self) -> int:
        """Bytes that it takes in the file."""
        return math.prod(self.shape) * _BYTES[self.dtype]

    @cached_property
    def _stored(self) -> npt.NDArray[Any]:
        """The tensor as stored, flat, mapped on first use."""
        kind = np.dtype(_KINDS[self.dtype])
        if not self.bytes:
            return np.empty(0, kind)
        raw = np.memmap(self.file, np.uint8, "r", self.offset, (self.bytes,))
        return raw.view(np.ndarray).view(kind)

    def read_rows(self, start: int, stop: int) -> Float32:
        """Rows ``start:stop`` along axis 0 as float32, shape [stop - start, ...]."""
        width = int(np.prod(self.shape[1:], dtype=np.int64))
        rows = self._floats(self._stored[start * width : stop * width])
        return rows.reshape(stop - start, *self.shape[1:])

    @property
    def where(self) -> str:
        """The file and its name, for messages."""
        return f"{self.file}: {self.name}"

    @property
    def leaves(self) -> Sequence[StoredTensor]:
        """Itself: it is made of no other."""
        return [self]

    @property
    def given(self) -> None:
        """It is not quantized."""
        return None

    def read_stored(self, box: Box | None = None) -> npt.NDArray[Any]:
        """The elements in ``box``, or all, as they are stored: floats of 8 bits as their bytes."""
        whole = self._stored.reshape(self.shape)
        found = whole if box is None else whole[tuple(slice(*one) for one in box)]
        return np.ascontiguousarray(found)

    def read_box(self, box: Box) -> Float32:
        """The part of it that lies in ``box`` as float32."""
        bits = self._stored.reshape(self.shape)[tuple(slice(*one) for one in box)]
        return self._floats(np.ascontiguousarray(bits))

    def _floats(self, bits: npt.NDArray[Any]) -> Float32:
        if self.dtype == "BF16":
            return (bits.astype(np.uint32) << 16).view(np.float32)
        return bits.astype(np.float32)


def read_header(file: Path, *, every: bool = False) -> dict[str, StoredTensor]:
    """The float tensors of ``file`` by name; with ``every`` those of all types.

    As strict as the format: the tensors lie one behind the other, without holes, overlaps or
    bytes behind the last, no name is there twice, and ``__metadata__`` maps texts to texts.

    Raises:
        InputError: The file is unreadable, truncated or not safetensors, or an entry is
            inconsistent; the message names the file and the tensor.
    """
    header, data_start, size = _load_header(file)
    _check_metadata(header.pop("__metadata__", {}), file)
    known = _KINDS if every else _STORED | _OTHERS
    entries = [_entry(file, name, entry, known) for name, entry in header.items()]
    _check_layout(entries, file, data_start, size)
    return {
        one.name: StoredTensor(file, one.name, one.dtype, one.shape, data_start + one.begin)
        for one in entries
        if every or one.dtype in _STORED
    }


def _load_header(file: Path) -> tuple[dict[str, Any], int, int]:
    try:
        with open_file(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(size - 8, _HEADER_LIMIT_BYTES):
                raise InputError(
                    f"truncated or not a safetensors file: {size} bytes, header of {length}",
                    where=str(file),
                    hint=_AGAIN,
                )
            header = parse_json(stream.read(length), unique_keys=True)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(file)) from error
    except JSONError as error:
        raise InputError(
            f"the safetensors header is not usable as JSON: {error}", where=str(file), hint=_AGAIN
        ) from error
    if not isinstance(header, dict):
        raise InputError("the safetensors header is not an object", where=str(file))
    return header, 8 + length, size


def _check_metadata(metadata: object, file: Path) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise InputError(
            "it does not map texts to texts", where=f"{file}: __metadata__", hint=_WRITE_AGAIN
        )


@dataclass(frozen=True)
class _Entry:
    """A tensor as the header has it; ``begin`` and ``end`` count from the header's end."""

    where: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _entry(file: Path, name: str, entry: Any, known: Container[str]) -> _Entry:
    """The header's entry for a tensor, its size checked against its shape."""
    where = f"{file}: {name}"
    fields = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not (isinstance(dtype, str) and _counts(shape) and _counts(offsets) and len(offsets) == 2):
        raise InputError("malformed entry in the safetensors header", where=where, hint=_AGAIN)
    if dtype not in known:
        raise InputError(
            f"tensors of type {dtype} are not supported",
            where=where,
            hint=f"use a checkpoint in {', '.join(_STORED)}",
        )
    begin, end = offsets
    expected = math.prod(shape) * _BYTES[dtype]
    if end - begin != expected:
        raise InputError(
            f"{dtype} of shape {shape} needs {expected} bytes, the header gives it {end - begin}",
            where=where,
            hint=_AGAIN,
        )
    return _Entry(where, name, dtype, tuple(shape), begin, end)


def _counts(values: Any) -> TypeGuard[list[int]]:
    """True if these are a few numbers of 0 to 2**63 - 1; ``true`` is none."""
    if not isinstance(values, list) or len(values) > _MOST_AXES:
        return False
    return all(type(value) is int and 0 <= value < 1 << 63 for value in values)


def _check_layout(entries: Sequence[_Entry], file: Path, data_start: int, size: int) -> None:
    """Check that the tensors fill the file from the header to its end, each byte once."""
    position = 0
    for one in sorted(entries, key=lambda one: (one.begin, one.end)):
        if data_start + one.end > size:
            raise InputError(
                f"truncated: the tensor ends at byte {data_start + one.end}, the file at {size}",
                where=one.where,
                hint=_AGAIN,
            )
        if one.begin != position:
            problem = "overlaps the one before" if one.begin < position else "follows a hole"
            raise InputError(
                f"the tensor {problem}: it begins at byte {data_start + one.begin}, the one before "
                f"ends at {data_start + position}",
                where=one.where,
                hint=_WRITE_AGAIN,
            )
        position = one.end
    if data_start + position != size:
        raise InputError(
            f"{size - data_start - position} bytes follow the last tensor",
            where=str(file),
            hint=_WRITE_AGAIN,
        )
