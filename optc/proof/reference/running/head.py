"""The head of a model, evaluated for tiles of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from optc.ir.weights import LazyWeight
from optc.proof.reference.partition import Partition
from optc.proof.reference.pieces import HeadTail
from optc.proof.reference.submodel import Array, open_session, run_session
from optc.runtime.executable.executable import Float32

#: Vocabulary entries per tile of the head.
VOCAB_TILE = 8192


@dataclass(frozen=True)
class HeadTile:
    """A tile of the head, ready to run.

    Attributes:
        start: First vocabulary entry.
        stop: One past the last.
        feeds: The tile's weight in float32 and values per entry, by input name.
        weight: Name of the weight's input.
    """

    start: int
    stop: int
    feeds: dict[str, Array]
    weight: str

    def with_rows(self, weight: LazyWeight) -> HeadTile:
        """The tile of a head of other rows [V, D]."""
        rows = np.ascontiguousarray(weight.read_rows(self.start, self.stop), np.float32)
        return replace(self, feeds=self.feeds | {self.weight: rows})


class Head:
    """The head.

    Args:
        model: Dense form.
        parts: Its pieces.
        threads: Threads of ONNX Runtime.
        keeps: Tiles stay in memory after they were read once.
    """

    def __init__(self, model: ir.Model, parts: Partition, threads: int, *, keeps: bool) -> None:
        self._tail = HeadTail(model, parts, by_rows=True)
        self._session = open_session(self._tail.model, threads)
        self._keeps = keeps
        self._kept: list[HeadTile] = []

    @property
    def vocab_size(self) -> int:
        """V, the width of the logits."""
        return self._tail.vocab_size

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
            yield HeadTile(start, stop, self._tail.feeds(start, stop), self._tail.weight)

    def logits(self, hidden: Float32, tile: HeadTile) -> Float32:
        """Logits [R, stop - start] of hidden states [R, D] for one tile of the vocabulary."""
        feeds = tile.feeds | {self._tail.hidden: np.ascontiguousarray(hidden[None])}
        result: Float32 = run_session(self._session, feeds)[0][0]
        return result

    def let_go(self) -> None:
        """Forget the tiles; they are read again when needed."""
        self._kept = []
