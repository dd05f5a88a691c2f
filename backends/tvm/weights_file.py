"""The packed weights of an engine in one file: written as a stream, mapped read-only at load."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.program import Tensor, tensor_from_json
from optc.errors import ArtifactError

#: Every tensor starts at a multiple of this many bytes: kernels load whole cache lines.
ALIGNMENT = 64
#: The file is padded to whole pages.
_PAGE = 4096

Array = npt.NDArray[Any]
#: Index of a tensor of the group, and its next elements in memory order.
Chunk = tuple[int, Array]


@dataclass(frozen=True)
class PackedWeight:
    """Tensors that are packed together, and the stream of their contents.

    Attributes:
        tensors: The packed tensors; shapes are numbers only.
        chunks: Gives the contents anew at every call; the chunks of one tensor come in order.
    """

    tensors: tuple[Tensor, ...]
    chunks: Callable[[], Iterator[Chunk]]


@dataclass(frozen=True)
class Placed:
    """A tensor and where it starts in the file."""

    tensor: Tensor
    offset: int

    @property
    def end(self) -> int:
        """First byte behind the tensor."""
        return self.offset + tensor_bytes(self.tensor)

    def to_json(self) -> dict[str, Any]:
        """The entry of the index, as `placed_from_json` reads it."""
        return {**asdict(self.tensor), "offset": self.offset}


def placed_from_json(data: dict[str, Any]) -> Placed:
    """An entry of the index."""
    return Placed(tensor_from_json(data), int(data["offset"]))


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor without symbolic dimensions."""
    return math.prod(int(d) for d in tensor.shape) * np.dtype(tensor.dtype).itemsize


def place(weights: Sequence[PackedWeight]) -> list[Placed]:
    """Offsets of all tensors, in the order of ``weights``."""
    placed: list[Placed] = []
    offset = 0
    for weight in weights:
        for tensor in weight.tensors:
            placed.append(Placed(tensor, offset))
            offset += -(-tensor_bytes(tensor) // ALIGNMENT) * ALIGNMENT
    return placed


def write_weights(
    path: Path, weights: Sequence[PackedWeight], progress: Callable[[int], None] | None = None
) -> list[Placed]:
    """Stream all weights into ``path``; returns where each tensor lies.

    Memory is that of one chunk at a time. ``progress`` is told the bytes of every chunk.

    Raises:
        RuntimeError: A weight's chunks do not fill its tensors (an internal error).
    """
    placed = place(weights)
    total = -(-max((p.end for p in placed), default=1) // _PAGE) * _PAGE
    with path.open("wb") as file:
        file.truncate(total)
        start = 0
        for weight in weights:
            slots = placed[start : start + len(weight.tensors)]
            start += len(slots)
            _write_one(file.fileno(), weight, slots, progress)
    return placed


def _write_one(
    descriptor: int,
    weight: PackedWeight,
    slots: Sequence[Placed],
    progress: Callable[[int], None] | None,
) -> None:
    positions = [slot.offset for slot in slots]
    for index, array in weight.chunks():
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        written = 0
        while written < data.size:
            written += os.pwrite(descriptor, data[written:].data, positions[index] + written)
        positions[index] += data.size
        if progress is not None:
            progress(data.size)
    for slot, position in zip(slots, positions, strict=True):
        if position != slot.end:
            raise RuntimeError(f"{slot.tensor.name}: packed {position - slot.end:+} bytes off")


class MappedWeights:
    """The weights file mapped read-only: a write into it is a fault, not a silent change.

    Pages are loaded when first used and shared by all processes that serve the artifact.
    """

    def __init__(self, path: Path, placed: Sequence[Placed]) -> None:
        """Map ``path``.

        Raises:
            ArtifactError: The file is missing or shorter than its index says.
        """
        needed = max((p.end for p in placed), default=1)
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < max(needed, 1):
                    raise ArtifactError(
                        f"the file has {size} bytes, its index needs {needed}",
                        where=path.name,
                        hint="the artifact was truncated: compile or copy it again",
                    )
                self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        except OSError as error:
            raise ArtifactError(
                f"cannot read the weights: {error.strerror}", where=path.name
            ) from error
        self._address = np.frombuffer(self._map, np.uint8).ctypes.data
        self._placed = {p.tensor.name: p for p in placed}

    def array(self, name: str) -> Array:
        """The tensor ``name``. NumPy sees it as writable (DLPack refuses others); the pages are
        not."""
        slot = self._placed[name]
        count = tensor_bytes(slot.tensor)
        raw = (ctypes.c_uint8 * count).from_address(self._address + slot.offset)
        flat = np.ctypeslib.as_array(raw).view(np.dtype(slot.tensor.dtype))
        return flat.reshape([int(d) for d in slot.tensor.shape])

    def close(self) -> None:
        """Unmap; no array of this object may be used afterwards."""
        self._map.close()
