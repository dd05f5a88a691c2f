"""The reference in stages, twice side by side: as it is, and with weights replaced on the way.

Whoever replaces weights sees, for each stage, what its linear layers read in both runs, before the
stage is run: so it can choose weights that make up for what was done to the stages before.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx_ir as ir

from optc.executable.executable import Float32, Int32
from optc.ir.linear import Linear
from optc.progress import tell
from optc.reference.blockwise import (
    BLOCK_ROWS,
    CALIBRATION,
    HIDDEN_BYTES,
    BlockwiseReference,
    chunks,
)
from optc.reference.partition import Block
from optc.reference.pieces import evaluate_shared
from optc.reference.stages import Stage, StageRun, stages_of
from optc.reference.submodel import Array


@dataclass(frozen=True)
class Pair:
    """One value [W, ...] in both runs.

    Attributes:
        changed: With the weights replaced.
        original: As it is.
    """

    changed: Float32
    original: Float32


class Replacer(Protocol):
    """Chooses weights stage by stage."""

    def weights(
        self, linears: Sequence[Linear], values: Mapping[ir.Value, Pair]
    ) -> Mapping[ir.Value, Array]:
        """Other contents, rows [N, K], of the initializers of ``linears``, which one stage holds.

        Args:
            linears: Their inputs are in ``values``.
            values: What is known of the block so far.
        """
        ...

    def head_input(self, hidden: Pair) -> None:
        """Take the head's input, after the last block."""
        ...

    def block_done(self, block: Block, values: Pair) -> None:
        """Take the block's result."""
        ...


def run_two_streams(model: ir.Model, tokens: Int32, replacer: Replacer, threads: int) -> None:
    """Take windows of tokens [W, S] through all blocks, under the hand of ``replacer``.

    Memory holds one stage's weights twice, and the values between two stages of all windows; what
    is beyond 256 MiB of them lies in temporary files.

    Args:
        model: Dense form; it is not changed.
        tokens: Windows; each starts at position 0.
        replacer: Chooses the weights.
        threads: Threads of ONNX Runtime.

    Raises:
        optc.errors.UnsupportedError: The model cannot be cut at its layers.
    """
    reference = BlockwiseReference(model, threads)
    try:
        with tempfile.TemporaryDirectory(prefix="optc-streams-") as folder:
            _Streams(reference, tokens, Path(folder)).run(replacer)
    finally:
        reference.close()


class _Streams:
    """The values of both runs that are still needed, for all windows."""

    def __init__(self, reference: BlockwiseReference, tokens: Int32, folder: Path) -> None:
        self._reference, self._tokens, self._folder = reference, tokens, folder
        windows, size = tokens.shape
        self._batch = min(windows, max(1, BLOCK_ROWS // size))
        positions = np.tile(np.arange(size, dtype=np.int64), (self._batch, 1))
        self._shared = evaluate_shared(
            reference.model, reference.parts, positions, reference.threads
        )
        self._files, self._free = 0, HIDDEN_BYTES

    def run(self, replacer: Replacer) -> None:
        blocks = self._reference.parts.blocks
        embedded = self._reference.embed(self._tokens)
        stream = Pair(embedded, embedded)
        for index, block in enumerate(blocks):
            tell(CALIBRATION, index, len(blocks))
            stream = self._block(block, stream, replacer)
            replacer.block_done(block, stream)
        replacer.head_input(stream)

    def _block(self, block: Block, source: Pair, replacer: Replacer) -> Pair:
        values, stages = {block.source: source}, stages_of(block)
        for index, stage in enumerate(stages):
            weights = replacer.weights(stage.linears, values) if stage.linears else {}
            values |= self._stage(stage, values, weights)
            needed = {v for later in stages[index + 1 :] for v in later.reads} | {block.result}
            values = {value: pair for value, pair in values.items() if value in needed}
        return values[block.result]

    def _stage(
        self, stage: Stage, values: Mapping[ir.Value, Pair], weights: Mapping[ir.Value, Array]
    ) -> dict[ir.Value, Pair]:
        reference = self._reference
        run = StageRun(reference.model, reference.parts, stage, self._shared, reference.threads)
        same = not weights and all(values[v].changed is values[v].original for v in stage.reads)
        changed = self._run(run, [values[v].changed for v in stage.reads], weights)
        original = changed if same else self._run(run, [values[v].original for v in stage.reads])
        return {v: Pair(*both) for v, *both in zip(stage.gives, changed, original, strict=True)}

    def _run(
        self,
        run: StageRun,
        inputs: Sequence[Float32],
        weights: Mapping[ir.Value, Array] | None = None,
    ) -> list[Float32]:
        kept: list[Float32] = []
        for chunk in self._chunks():
            results = run.run([value[chunk] for value in inputs], weights)
            kept = kept or [self._allocate(result.shape[1:]) for result in results]
            for whole, part in zip(kept, results, strict=True):
                whole[chunk] = part
        return kept

    def _chunks(self) -> Iterator[slice]:
        return chunks(len(self._tokens), self._batch)

    def _allocate(self, shape: tuple[int, ...]) -> Float32:
        whole = (len(self._tokens), *shape)
        size = 4 * int(np.prod(whole))
        if size <= self._free:
            self._free -= size
            array = np.empty(whole, np.float32)
            weakref.finalize(array, self._give_back, size)
            return array
        path = self._folder / str(self._files)
        self._files += 1
        mapped = np.memmap(path, np.float32, "w+", shape=whole)
        path.unlink()  # its space is free again when the last reader lets go
        return mapped

    def _give_back(self, size: int) -> None:
        self._free += size
