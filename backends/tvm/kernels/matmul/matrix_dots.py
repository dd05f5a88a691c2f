"""Products of tiles of several rows by usmmla, the matrix product of i8mm: two columns of weights
by two rows of activations, eight input channels at once, added to four int32.

    registers of four columns, channels k..k+3 and k+4..k+7      zipped by words
    a0 b0 c0 d0 | a1 b1 c1 d1                                    a0 a1 b0 b1 | c0 c1 d0 d1

    sums of rows r and s:  ar as br bs | cr cs dr ds             unzipped at the end: abcd of each
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.matmul.activations import AsStored
from optc.backends.tvm.kernels.matmul.tiles import Registers

_NAME = "llvm.aarch64.neon.usmmla.v4i32.v16i8"


class MatrixDots:
    """The sums of a tile while its products are added: of pairs of rows.

    Args:
        sums: int32, of the tile; what is there stays part of them.
        rows: Index of each row in the activations.
        activations: int8.
    """

    def __init__(self, sums: Registers, rows: Sequence[Any], activations: AsStored) -> None:
        self._sums, self._activations = sums, activations
        self._pairs = [(rows[r], rows[min(r + 1, len(rows) - 1)]) for r in range(0, len(rows), 2)]
        self._own = Registers(len(self._pairs), 2 * sums.vectors, 4, "int32")
        for cell in self._own.cells():
            self._own[cell] = tir.broadcast(tir.int32(0), 4)
        self._kept: list[Any] = []

    def use(self, k: Any, vectors: list[Any]) -> None:
        """Take four channels from ``k`` on; those of every second call are multiplied with those
        before them."""
        if not self._kept:
            self._kept = vectors
            return
        before, self._kept = self._kept, []
        rows = [self._activations.pair(row, other, k - 4) for row, other in self._pairs]
        for c, (low, high) in enumerate(zip(before, vectors, strict=True)):
            for half, zipped in enumerate(_zipped(low, high)):
                for pair, activations in enumerate(rows):
                    cell = pair, 2 * c + half
                    self._own[cell] = tir.call_llvm_pure_intrin(
                        "int32x4", _NAME, self._own[cell], zipped, activations
                    )

    def finish(self) -> None:
        """Add the products to the tile's sums."""
        for r, c in self._sums.cells():
            left, right = (self._own[r // 2, 2 * c + half] for half in range(2))
            odd = r % 2
            products = tvm.tirx.Shuffle([left, right], [odd, 2 + odd, 4 + odd, 6 + odd])
            self._sums[r, c] = self._sums[r, c] + products


def _zipped(low: Any, high: Any) -> tuple[Any, Any]:
    """Words of two u8x16 in turn, of their first and second halves, u8x16."""
    words = [tir.bind(tir.reinterpret(vector, dtype="int32x4")) for vector in (low, high)]
    first = tvm.tirx.Shuffle(words, [0, 4, 1, 5])
    second = tvm.tirx.Shuffle(words, [2, 6, 3, 7])
    return (
        tir.bind(tir.reinterpret(first, dtype="uint8x16")),
        tir.bind(tir.reinterpret(second, dtype="uint8x16")),
    )
