"""The head of a model, evaluated for tiles of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from optc.ir.weights import LazyWeight
from optc.proof.reference.execution.part import open_part
from optc.proof.reference.partition import Partition
from optc.proof.reference.pieces import HeadPieces
from optc.runtime.executable.executable import Float32

if TYPE_CHECKING:
    from optc.proof.reference.execution.torch_part import TorchPart

#: Vocabulary entries per tile of the head.
VOCAB_TILE = 8192


@dataclass(frozen=True)
class HeadTile:
    """A tile of the head, ready to run.

    Attributes:
        start: First vocabulary entry.
        stop: One past the last.
        weight: The tile's weight [n, D], as the head's part holds it.
        others: Values per entry, likewise.
        part: Computes logits.
    """

    start: int
    stop: int
    weight: Any
    others: tuple[Any, ...]
    part: TorchPart

    def with_rows(self, weight: LazyWeight) -> HeadTile:
        """The tile of a head of other rows [V, D]."""
        rows = np.ascontiguousarray(weight.read_rows(self.start, self.stop), np.float32)
        return replace(self, weight=self.part.hold(rows))

    def logits(self, hidden: Float32) -> Float32:
        """Logits [R, stop - start] of hidden states [R, D]."""
        given = np.ascontiguousarray(hidden[None])
        result: Float32 = self.part.run([given, self.weight, *self.others])[0][0]
        return result


class Head:
    """The head.

    Args:
        model: Dense form.
        parts: Its pieces.
        threads: Threads of a CPU.
        keeps: Tiles stay in memory after they were read once.
    """

    def __init__(self, model: ir.Model, parts: Partition, threads: int, *, keeps: bool) -> None:
        self._pieces = pieces = HeadPieces(model, parts)
        self._part = open_part(model, pieces.nodes, pieces.inputs, [pieces.logits], threads)
        self._keeps = keeps
        self._kept: list[HeadTile] = []

    @property
    def vocab_size(self) -> int:
        """V, the width of the logits."""
        return self._pieces.vocab_size

    @property
    def tile_count(self) -> int:
        """The number of tiles."""
        return -(-self.vocab_size // VOCAB_TILE)

    def tiles(self) -> Iterator[HeadTile]:
        """The tiles over the vocabulary, in order."""
        if self._keeps and not self._kept:
            self._kept = list(self._read())
        yield from self._kept or self._read()

    def _read(self) -> Iterator[HeadTile]:
        for start in range(0, self.vocab_size, VOCAB_TILE):
            stop = min(start + VOCAB_TILE, self.vocab_size)
            rows, others = self._pieces.tile(start, stop)
            weight, held = self._part.hold(rows), tuple(map(self._part.hold, others))
            yield HeadTile(start, stop, weight, held, self._part)

    def logits(self, hidden: Float32, tile: HeadTile) -> Float32:
        """Logits [R, stop - start] of hidden states [R, D] for one tile of the vocabulary."""
        return tile.logits(hidden)

    def let_go(self) -> None:
        """Forget the tiles; they are read again when needed."""
        self._kept = []
