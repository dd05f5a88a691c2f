"""Weights of a block of 64 channels as tiles of AMX take them: where they lie, or as a task made
them in its memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.matmul.places import BLOCK, LINE, Place
from optc.backends.tvm.kernels.matmul.rooms import Rooms
from optc.backends.tvm.kernels.matmul.tiles import store
from optc.backends.tvm.kernels.matmul.weights import Weights


class Source(Protocol):
    """Weights as tiles take them: four channels of 16 columns in 64 bytes; of bfloat16 two."""

    @property
    def stride(self) -> int:
        """Bytes between one four of channels and the next one."""
        ...

    def at(self, place: Place, four: Any, column: Any) -> Any:
        """The address of a four of channels, from a column of the block on."""
        ...

    def vectors(self, place: Place, four: Any, column: Any, count: int) -> list[Any]:
        """The same as vectors of 16 columns, u8."""
        ...


@dataclass(frozen=True)
class Packed:
    """Weights where they lie.

    Attributes:
        w: u8 [B, Kp/4, 64, 4], or the bits of bfloat16 u16 [B, K/2 rounded up, 64, 2], which have
            no ``vectors``.
    """

    w: Any
    stride: int = 4 * BLOCK

    def at(self, place: Place, four: Any, column: Any) -> Any:
        """In the block."""
        return tir.address_of(self.w[place.block, four, column, 0])

    def vectors(self, place: Place, four: Any, column: Any, count: int) -> list[Any]:
        """From the block."""
        spots = ([place.block, four, column + c * LINE, 0] for c in range(count))
        return [tir.bind(self.w.vload(spot, "uint8x64")) for spot in spots]


@dataclass(frozen=True)
class InRoom:
    """Weights that a task made of packed ones.

    Attributes:
        buffer: u8 [Kp/4, 4, 64].
    """

    buffer: Any
    stride: int = 4 * BLOCK

    def at(self, place: Place, four: Any, column: Any) -> Any:
        """In the task's memory."""
        return tir.address_of(self.buffer[four, column // LINE, 0])

    def vectors(self, place: Place, four: Any, column: Any, count: int) -> list[Any]:
        """From the task's memory."""
        spots = ([four, column // LINE + c, 0] for c in range(count))
        return [tir.bind(self.buffer.vload(spot, "uint8x64")) for spot in spots]


def unpacked(weights: Weights, channels: int, place: Place, rooms: Rooms) -> InRoom:
    """Write a block's weights into a task's memory, as u8; they fetch nothing."""
    buffer = rooms.take((channels // 4, BLOCK // LINE, 4 * LINE), "uint8")

    def write(k: Any, vectors: list[Any]) -> None:
        for c, vector in enumerate(vectors):
            store(buffer, vector, [k // 4, c, 0], 4 * LINE)

    weights.each_four(replace(place, pace=0), 0, 0, BLOCK // LINE, write)
    return InRoom(buffer)
