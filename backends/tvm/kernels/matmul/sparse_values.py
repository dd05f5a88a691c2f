"""Sparse int8 weights as the unsigned values that the dense matmul multiplies: expanded in
registers, or by a task before its tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.matmul.places import LINE, Place
from optc.backends.tvm.kernels.matmul.tiles import local, store
from optc.backends.tvm.kernels.matmul.weights import Use
from optc.backends.tvm.weights.sparse_packing import SEGMENT, STEP, VECTOR, ZERO

#: Bytes of a vector, and bits of its mask.
BYTES = VECTOR * STEP
#: Bytes by which values are fetched ahead, of each stream.
AHEAD = 1024


@dataclass(frozen=True)
class SparseValues:
    """Values that are not zero, and where they belong (`optc.backends.tvm.weights.sparse_packing`).

    Attributes:
        mask: u64 [B, Kp / 4, 4].
        starts: i64 [B, S, 4].
        values: u8 [V], weight + 128.
    """

    mask: Any
    starts: Any
    values: Any

    def each_four(self, place: Place, group: Any, column: Any, count: int, use: Use) -> None:
        """Step by step: load what comes next of each stream, and spread it among zeros."""
        first, number = place.extent(int(self.mask.shape[1]), STEP)
        segment = 0
        if place.panel is not None:
            segment = tir.bind(place.panel.index * place.panel.channels // SEGMENT)
        streams = [column // LINE + c for c in range(count)]
        positions = [local(1, "int64") for _ in streams]
        for position, stream in zip(positions, streams, strict=True):
            tir.buffer_store(position, self.starts[place.block, segment, stream], [0])
        with tir.serial(number) as following:
            step = tir.bind(first + following)
            pairs = zip(positions, streams, strict=True)
            masks = [tir.bind(self.mask[place.block, step, stream]) for stream in streams]
            vectors = []
            for mask, (position, _) in zip(masks, pairs, strict=True):
                vectors.append(self._expanded(mask, position))
            use(step * STEP, vectors)

    def _expanded(self, mask: Any, position: Any) -> Any:
        """The vector of a step; moves the stream's position behind its values."""
        start = tir.bind(position[0])
        loaded = self.values.vload([start], f"uint8x{BYTES}")
        zeros = tir.broadcast(tir.uint8(ZERO), BYTES)
        ones = tir.reinterpret(mask, dtype=f"uint1x{BYTES}")
        name = "llvm.x86.avx512.mask.expand"
        expanded = tir.call_llvm_pure_intrin(f"uint8x{BYTES}", name, loaded, zeros, ones)
        vector = tir.bind(expanded)
        number = tir.call_llvm_pure_intrin("uint64", "llvm.ctpop", mask)
        tir.buffer_store(position, start + tir.cast(number, "int64"), [0])
        fetch_bytes(self.values, start + tir.int64(AHEAD))
        return vector


@dataclass(frozen=True)
class Expanded:
    """A task's channels, expanded before its tiles.

    Attributes:
        buffer: u8 [Kp / 4, vectors, 64], which hold the task's columns in order, from the first
            channel of the place's panel on.
        first: First channel of the task within its block.
    """

    buffer: Any
    first: Any

    def each_four(self, place: Place, group: Any, column: Any, count: int, use: Use) -> None:
        """Step by step."""
        first, number = place.extent(int(self.buffer.shape[0]), STEP)
        with tir.serial(number) as step:
            vector = (column - self.first) // LINE
            spots = [[step, vector + c, 0] for c in range(count)]
            loads = [tir.bind(self.buffer.vload(spot, f"uint8x{BYTES}")) for spot in spots]
            use((first + step) * STEP, loads)


def expand(values: SparseValues, buffer: Any, place: Place) -> None:
    """Write a task's channels, weight + 128, into the buffer of `Expanded`."""
    origin = 0 if place.panel is None else place.panel.index * place.panel.channels

    def write(k: Any, vectors: list[Any]) -> None:
        for c, vector in enumerate(vectors):
            store(buffer, vector, [(k - origin) // STEP, c, 0], BYTES)

    values.each_four(place, 0, place.column, place.width // LINE, write)


def fetch_bytes(buffer: Any, element: Any) -> None:
    """Fetch the cache line of an element of a buffer of one axis into the second-level cache; that
    it lies beyond the buffer is no error."""
    read, locality, data = tir.int32(0), tir.int32(2), tir.int32(1)
    address = tir.address_of(buffer[element])
    tir.evaluate(tir.call_llvm_intrin("void", "llvm.prefetch", address, read, locality, data))
