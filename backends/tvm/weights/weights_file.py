"""The packed weights of an engine in one file: written as a stream, mapped read-only at load."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from optc.backends.tvm.loaded.huge_pages import HugePageWriter, map_now
from optc.backends.tvm.program import Tensor
from optc.errors import ArtifactError
from optc.system.foreign.typed_json import Positive, Size
from optc.system.hardware.blas_threads import one_blas_thread
from optc.system.hardware.target import usable_threads

#: Every tensor starts at a multiple of this many bytes: kernels load whole cache lines.
ALIGNMENT = 64
#: The file is padded to whole pages.
_PAGE = 4096

Array = npt.NDArray[Any]
#: Index of a tensor of the group, and its next elements in memory order.
Chunk = tuple[int, Array]


@dataclass(frozen=True)
class PackedWeight:
    """Tensors that are packed together, and how to pack them tile by tile.

    Attributes:
        tensors: The packed tensors; shapes are numbers only.
        tiles: Row ranges that cover the weight, in order.
        pack: ``pack(start, stop)`` gives the contents of these rows, in every tensor's memory
            those next to the rows before; called from several threads.
    """

    tensors: tuple[Tensor, ...]
    tiles: tuple[tuple[int, int], ...]
    pack: Callable[[int, int], Iterator[Chunk]]


class Placed(Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor, where it starts in the file, and which file that is.

    Attributes:
        name: As of `Tensor`.
        dtype: As of `Tensor`; one of NumPy's numbers.
        shape: In elements.
        offset: A multiple of `ALIGNMENT`.
        own: It lies in the engine's own file although the engine reads another's, too.
    """

    name: str
    dtype: str
    shape: tuple[Positive, ...]
    offset: Size
    own: bool = False

    def __post_init__(self) -> None:
        if np.dtype(self.dtype).kind not in "iuf":
            raise ValueError(f"weights of {self.dtype[:80]!r}")
        if self.offset % ALIGNMENT:
            raise ValueError(f"the offset {self.offset} is no multiple of {ALIGNMENT}")

    @classmethod
    def of(cls, tensor: Tensor, offset: int) -> Placed:
        """A tensor without symbolic dimensions at ``offset``."""
        return cls(tensor.name, tensor.dtype, tuple(int(d) for d in tensor.shape), offset)

    @property
    def tensor(self) -> Tensor:
        """The tensor."""
        return Tensor(self.name, self.dtype, self.shape)

    @property
    def end(self) -> int:
        """First byte behind the tensor."""
        return self.offset + math.prod(self.shape) * np.dtype(self.dtype).itemsize


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor without symbolic dimensions."""
    return math.prod(int(d) for d in tensor.shape) * np.dtype(tensor.dtype).itemsize


def place(weights: Sequence[PackedWeight]) -> list[Placed]:
    """Offsets of all tensors, in the order of ``weights``."""
    placed: list[Placed] = []
    offset = 0
    for weight in weights:
        for tensor in weight.tensors:
            placed.append(Placed.of(tensor, offset))
            offset += -(-tensor_bytes(tensor) // ALIGNMENT) * ALIGNMENT
    return placed


def laid_out_bytes(weights: Sequence[PackedWeight]) -> int:
    """Bytes of the file that `write_weights` would write."""
    return _file_bytes(place(weights))


def _file_bytes(placed: Sequence[Placed]) -> int:
    return -(-max((p.end for p in placed), default=1) // _PAGE) * _PAGE


def write_weights(
    path: Path,
    weights: Sequence[PackedWeight],
    progress: Callable[[int], None] | None = None,
    *,
    threads: int | None = None,
) -> list[Placed]:
    """Stream all weights into ``path``; returns where each tensor lies.

    Tiles are packed by ``threads`` threads (all usable ones by default) and written in order by
    this one: the bytes do not depend on the threads, and memory is that of a tile each and one
    more. ``progress`` is told the bytes of every chunk.

    Raises:
        RuntimeError: A weight's chunks do not fill its tensors (an internal error).
    """
    placed = place(weights)
    total = _file_bytes(placed)
    positions: list[list[int]] = []
    start = 0
    for weight in weights:
        slots = placed[start : start + len(weight.tensors)]
        positions.append([slot.offset for slot in slots])
        start += len(slots)
    with path.open("wb") as file:
        pages = HugePageWriter(file.fileno(), total)
        with one_blas_thread():
            for index, chunks in _packed_tiles(weights, threads or usable_threads()):
                for tensor, array in chunks:
                    size = pages.write(array, positions[index][tensor])
                    positions[index][tensor] += size
                    if progress is not None:
                        progress(size)
    for slot, position in zip(placed, chain.from_iterable(positions), strict=True):
        if position != slot.end:
            raise RuntimeError(f"{slot.name}: packed {position - slot.end:+} bytes off")
    return placed


def _packed_tiles(
    weights: Sequence[PackedWeight], threads: int
) -> Iterator[tuple[int, list[Chunk]]]:
    """Every tile's chunks, with the index of its weight, in order, packed by ``threads`` threads.

    NumPy leaves the interpreter lock while it computes, so that threads are enough.
    """
    pending: deque[tuple[int, Future[list[Chunk]]]] = deque()
    pool = ThreadPoolExecutor(threads, "optc-pack")
    try:
        for index, weight in enumerate(weights):
            for start, stop in weight.tiles:
                pending.append((index, pool.submit(_packed, weight, start, stop)))
                if len(pending) > threads:
                    yield _finished(pending)
        while pending:
            yield _finished(pending)
    finally:
        pool.shutdown(cancel_futures=True)


def _packed(weight: PackedWeight, start: int, stop: int) -> list[Chunk]:
    return list(weight.pack(start, stop))


def _finished(
    pending: deque[tuple[int, Future[list[Chunk]]]],
) -> tuple[int, list[Chunk]]:
    index, future = pending.popleft()
    return index, future.result()


class MappedWeights:
    """The weights file mapped read-only: a write into it is a fault, not a silent change.

    Pages are loaded at once and shared by all processes that serve the artifact. Of a file that is
    mapped ``private``, none are, and pages may become this process's own.

    Attributes:
        address: Of the first byte.
        descriptor: Of the file, if it is mapped privately; else -1.
    """

    def __init__(self, path: Path, placed: Sequence[Placed], *, private: bool = False) -> None:
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
                self.descriptor = os.dup(file.fileno()) if private else -1
                if private:
                    both = mmap.PROT_READ | mmap.PROT_WRITE
                    self._map = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=both)
                else:
                    self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                    map_now(self._map)
        except OSError as error:
            raise ArtifactError(
                f"cannot read the weights: {error.strerror}", where=path.name
            ) from error
        self.address = np.frombuffer(self._map, np.uint8).ctypes.data
        self._placed = {p.name: p for p in placed}

    def array(self, name: str) -> Array:
        """The tensor ``name``. NumPy sees it as writable (DLPack refuses others); the pages are
        not."""
        slot = self._placed[name]
        raw = (ctypes.c_uint8 * (slot.end - slot.offset)).from_address(self.address + slot.offset)
        flat = np.ctypeslib.as_array(raw).view(np.dtype(slot.dtype))
        return flat.reshape(slot.shape)

    def close(self) -> None:
        """Unmap; no array of this object may be used afterwards."""
        self._map.close()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class WeightFiles:
    """The weights of an engine, in another engine's file and in one of its own.

    Args:
        shared: The file of those that are not `Placed.own`.
        own: The file of those that are, opened if there are any.
        placed: All.
        private: As of `MappedWeights`.

    Raises:
        ArtifactError: As of `MappedWeights`.
    """

    def __init__(
        self, shared: Path, own: Path, placed: Sequence[Placed], *, private: bool = False
    ) -> None:
        self._paths, self._all = (shared, own), placed
        mine = [p for p in placed if p.own]
        self._own = {p.name for p in mine}
        others = [p for p in placed if not p.own]
        self._files = [MappedWeights(shared, others, private=private)]
        if mine:
            self._files.append(MappedWeights(own, mine, private=private))

    def array(self, name: str) -> Array:
        """The tensor ``name``, as of `MappedWeights.array`."""
        return self._files[name in self._own].array(name)

    def of(self, folder: Path) -> WeightFiles:
        """Those at the same places of the same engine in another artifact.

        Args:
            folder: Its own file's.

        Raises:
            ArtifactError: As of `MappedWeights`.
        """
        shared, own = self._paths
        return WeightFiles(
            folder / os.path.relpath(shared, own.parent), folder / own.name, self._all
        )

    def close(self) -> None:
        """Unmap; no array of this object may be used afterwards."""
        for file in self._files:
            file.close()
