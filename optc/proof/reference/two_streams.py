"""The reference in stages, twice side by side: as it is, and with weights replaced on the way.

Each block runs as it is first. Whoever replaces weights then sees, for each stage, what its linear
layers read in both runs, before the stage is run: so it can choose weights that make up for what
was done to the stages before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx_ir as ir

from optc.ir.linear import find_linear
from optc.ir.weights import Array
from optc.proof.reference.blockwise import (
    BLOCK_ROWS,
    CALIBRATION,
    HIDDEN_BYTES,
    BlockwiseReference,
    chunks,
)
from optc.proof.reference.partition import Block
from optc.proof.reference.pieces import evaluate_shared
from optc.proof.reference.running.rows import join_rows, split_rows
from optc.proof.reference.streams.arrays import ValueArrays
from optc.proof.reference.streams.floats import put
from optc.proof.reference.streams.products import Products, RunProducts
from optc.proof.reference.streams.stage import Stage, StageRun, stages_of
from optc.runtime.executable.executable import Int32
from optc.system.processes.process_memory import freed_is_kept, give_back_freed
from optc.system.progress import tell

Values = dict[ir.Value, Array]


@dataclass(frozen=True)
class Pair:
    """One value [W, ...] in both runs, float32, or as `Products.dtype` has it.

    Attributes:
        changed: With the weights replaced.
        original: As it is; the array ``changed`` itself where nothing before it was replaced.
    """

    changed: Array
    original: Array


@dataclass(frozen=True)
class Seen:
    """The known values [W, ...] of a block before one of its stages runs.

    Attributes:
        changed: With the weights replaced, as far as the run has come.
        original: As they are, of the whole block: those that the replacer compares.
        products: Multiplies the linear layers whose weights are replaced.
    """

    changed: Mapping[ir.Value, Array]
    original: Mapping[ir.Value, Array]
    products: Products


class Replacer(Protocol):
    """Chooses weights stage by stage."""

    def compared(self, stage: Stage) -> Iterable[ir.Value]:
        """Values of the block, as they are, that it will need to replace weights of ``stage``."""
        ...

    def weights(self, stage: Stage, seen: Seen) -> Mapping[ir.Value, Array]:
        """Other contents, rows [N, K], of the initializers of the linear layers of ``stage``.

        Args:
            stage: What it reads is in ``seen.changed``.
            seen: What is known of the block.
        """
        ...

    def head_input(self, hidden: Pair) -> None:
        """Take the head's input, after the last block."""
        ...

    def block_done(self, block: Block, values: Pair) -> None:
        """Take the block's result."""
        ...


class Checkpoints(Protocol):
    """The store from which a stopped run goes on."""

    def load(self) -> tuple[int, Pair] | None:
        """The number of blocks done and the result of the last, float32; None to begin anew."""
        ...

    def save(self, done: int, stream: Pair) -> None:
        """Keep the result of the last of ``done`` blocks, and what it takes to go on from there."""
        ...


def run_two_streams(
    model: ir.Model,
    tokens: Int32,
    replacer: Replacer,
    products: RunProducts,
    threads: int,
    blocks: int = 0,
    checkpoints: Checkpoints | None = None,
) -> None:
    """Take windows of tokens [W, S] through all blocks, under the hand of ``replacer``.

    Memory holds one block's weights, as ``products`` has them, and one stage's in float32. Values
    beyond 256 MiB lie in temporary files: those between two stages, and those that are compared.

    Args:
        model: Dense form; it is not changed.
        tokens: Windows; each starts at position 0.
        replacer: Chooses the weights.
        products: Multiplies the linear layers.
        threads: Threads of a CPU.
        blocks: How many of the first blocks; 0 are all of them, and then the head's input.
        checkpoints: Asked before the first block, and told of each that is done.

    Raises:
        optc.errors.UnsupportedError: The model cannot be cut at its layers.
    """
    reference = BlockwiseReference(model, threads)
    try:
        _Streams(reference, tokens, products).run(replacer, blocks, checkpoints)
    finally:
        reference.close()


class _Streams:
    """The values of both runs that are still needed, for all windows."""

    def __init__(self, reference: BlockwiseReference, tokens: Int32, products: RunProducts) -> None:
        self._reference, self._tokens, self._products = reference, tokens, products
        windows, size = tokens.shape
        self._batch = min(windows, max(1, BLOCK_ROWS // size))
        positions = np.tile(np.arange(size, dtype=np.int64), (self._batch, 1))
        self._shared = evaluate_shared(
            reference.model, reference.parts, positions, reference.threads
        )
        self._arrays = ValueArrays(HIDDEN_BYTES)

    def run(self, replacer: Replacer, count: int, checkpoints: Checkpoints | None) -> None:
        every = self._reference.parts.blocks
        blocks = every[:count] if count else every
        known = None if checkpoints is None else checkpoints.load()
        if known is not None:
            done, stream = known
        else:
            embedded = self._reference.embed(self._tokens)
            done, stream = 0, Pair(embedded, embedded)
        for index, block in enumerate(blocks[done:], start=done):
            tell(CALIBRATION, index, len(blocks))
            stream = self._block(block, stream, replacer)
            replacer.block_done(block, stream)
            if checkpoints is not None:
                checkpoints.save(index + 1, stream)
        if len(blocks) == len(every):
            replacer.head_input(stream)

    def _block(self, block: Block, source: Pair, replacer: Replacer) -> Pair:
        runs = [self._open(stage) for stage in stages_of(block)]
        stages = [run.stage for run in runs]
        if source.changed is source.original:  # all may be the same in both runs
            compared = {value for stage in stages for value in stage.gives}
        else:
            compared = {v for stage in stages for v in replacer.compared(stage)}
        original = self._original(block, runs, source.original, compared.union(block.gives))
        give_back_freed()
        changed = split_rows(source.changed, block.given)
        if source.changed is source.original:
            changed = {value: original[value] for value in block.given}
        for index, run in enumerate(runs):
            seen = Seen(changed, original, self._products.changed)
            changed |= self._changed(block, run, seen, replacer)
            needed = {v for later in stages[index + 1 :] for v in later.reads}.union(block.gives)
            changed = {value: array for value, array in changed.items() if value in needed}
            give_back_freed()  # sums and weights of the stage, which the next has of other sizes
        rows = join_rows(original, block.gives)
        same = all(changed[value] is original[value] for value in block.gives)
        return Pair(rows if same else join_rows(changed, block.gives), rows)

    def _original(
        self, block: Block, runs: Sequence[StageRun], source: Array, kept: set[ir.Value]
    ) -> Values:
        """The block's source, and values of it as it is."""
        for run in runs:
            run.load(self._products.original)
        found: Values = {}
        for chunk in self._through():
            values = split_rows(source[chunk], block.given)
            for run in runs:
                results = run.run([values[value] for value in run.stage.reads])
                values |= dict(zip(run.stage.gives, results, strict=True))
                given = {v: values[v] for v in run.stage.gives if v in kept}
                self._keep(found, chunk, given, block, self._products.original)
        for run in runs:
            run.unload()
        return split_rows(source, block.given) | found

    def _changed(
        self, block: Block, run: StageRun, seen: Seen, replacer: Replacer
    ) -> Mapping[ir.Value, Array]:
        """The results of a stage with its weights replaced."""
        weights = replacer.weights(run.stage, seen) if run.stage.linears else {}
        if not weights and all(seen.changed[v] is seen.original.get(v) for v in run.stage.reads):
            return {value: seen.original[value] for value in run.stage.gives}
        run.load(self._products.changed, weights)
        del weights  # they take more than what was loaded
        found: Values = {}
        for chunk in self._through():
            results = run.run([seen.changed[value][chunk] for value in run.stage.reads])
            given = dict(zip(run.stage.gives, results, strict=True))
            self._keep(found, chunk, given, block, self._products.changed)
        run.unload()
        return found

    def _open(self, stage: Stage) -> StageRun:
        reference = self._reference
        shared, threads = self._shared, reference.threads
        return StageRun(reference.model, reference.parts, stage, shared, threads)

    def _keep(
        self,
        found: Values,
        chunk: slice,
        values: Mapping[ir.Value, Array],
        block: Block,
        products: Products,
    ) -> None:
        """Put a chunk's values where those of all windows lie; what only layers read as their
        products round it in any case, the block's result apart."""
        for value, array in values.items():
            narrow = value not in block.gives and _multiplied_only(value)
            dtype = products.dtype if narrow else array.dtype
            if value not in found:
                shape = (len(self._tokens), *array.shape[1:])
                found[value] = self._arrays.empty(shape, dtype)
            put(found[value][chunk], array)

    def _through(self) -> Iterator[slice]:
        """Chunks of windows that are run one after the other, in the same memory."""
        with freed_is_kept():
            yield from chunks(len(self._tokens), self._batch)


def _multiplied_only(value: ir.Value) -> bool:
    """True if nothing but linear layers reads a value."""
    uses = list(value.uses())
    layers = [find_linear(use.node) for use in uses]
    return bool(uses) and all(one is not None and one.x is value for one in layers)
