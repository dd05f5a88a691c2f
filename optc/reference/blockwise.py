"""The float32 reference: a dense-form model on ONNX Runtime, one decoder layer at a time.

All windows go through one layer before the next layer's weights are read, so that the memory
needed is one layer in float32 and the hidden states, never the model. The head is evaluated for
tiles of the vocabulary from the kept last hidden states. Observers see the values of each block
while the model runs, and may rewrite it (`optc.reference.observers`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir

from optc.executable.executable import Float32, Int32
from optc.ir.weights import LazyWeight, as_lazy
from optc.process_memory import give_back_freed
from optc.progress import tell
from optc.reference.block_run import BlockRun
from optc.reference.observers import BlockObserver, BlockValues, all_watched
from optc.reference.partition import Block, Partition, partition
from optc.reference.pieces import HeadTail, evaluate_shared
from optc.reference.submodel import Array, open_session, run_session

#: The stage in reports of progress.
CALIBRATION = "calibration"
#: Told (done, total) blocks.
BlockProgress = Callable[[int, int], None]

#: Rows per run of a block: enough to amortize the packing of its weights.
BLOCK_ROWS = 1024
#: Vocabulary entries per tile of the head.
VOCAB_TILE = 8192
#: Hidden states beyond this many bytes are kept in a file.
HIDDEN_BYTES = 256 << 20


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


class BlockwiseReference:
    """Hidden states and logits of a dense-form model in float32.

    Args:
        model: Dense form, as `canonicalize` leaves it (inputs input_ids and position_ids).
        threads: Threads of ONNX Runtime.

    Attributes:
        model: The model.
        threads: Threads of ONNX Runtime.
        parts: The model in pieces: what observers name blocks and values by.

    Raises:
        optc.errors.UnsupportedError: The model cannot be cut (see `partition`).
    """

    def __init__(self, model: ir.Model, threads: int) -> None:
        self.model = model
        self.threads = threads
        self.parts: Partition = partition(model)
        self._tail = HeadTail(model, self.parts, by_rows=True)
        self._tail_session = open_session(self._tail.model, threads)
        self._scratch: list[tempfile.TemporaryDirectory[str]] = []
        self._known: tuple[Int32, Float32] | None = None

    @property
    def vocab_size(self) -> int:
        """V, the width of the logits."""
        return self._tail.vocab_size

    def hidden_states(self, tokens: Int32, progress: BlockProgress | None = None) -> Float32:
        """Inputs of the head, [W * S, D], for windows of tokens [W, S] at positions 0 … S - 1.

        The result may be memory-mapped; it is valid until `close`, and given again for the same
        windows or some of them: several engines are compared with one run.
        """
        rows = None if self._known is None else _places(tokens, self._known[0])
        if self._known is None or rows is None:
            self._known = tokens.copy(), self.run(tokens, progress=progress)
        elif rows != list(range(len(self._known[0]))):
            known = self._known[1].reshape(*self._known[0].shape, -1)
            return known[rows].reshape(tokens.size, -1)
        return self._known[1]

    def run(
        self,
        tokens: Int32,
        observers: Sequence[BlockObserver] = (),
        *,
        keep_original: bool = False,
        progress: BlockProgress | None = None,
    ) -> Float32:
        """Take windows of tokens [W, S] through all blocks, under the eyes of ``observers``.

        Args:
            tokens: Windows; each starts at position 0.
            observers: See the values of each block, and may rewrite it.
            keep_original: Carry the hidden states of the unchanged model along, so that observers
                see both. It costs one more run of every block and one more set of hidden states.
            progress: Told after each block.

        Returns:
            Inputs of the head, [W * S, D], after all rewrites. They may be memory-mapped and are
            valid until `close`.
        """
        windows, size = tokens.shape
        streams = [self.embed(tokens)]
        if keep_original:
            streams.append(self._copy(streams[0]))
        batch = min(windows, max(1, BLOCK_ROWS // size))
        positions = np.tile(np.arange(size, dtype=np.int64), (batch, 1))
        shared = evaluate_shared(self.model, self.parts, positions, self.threads)
        results = self._allocate(streams[0].shape) if observers else streams[0]
        for index, block in enumerate(self.parts.blocks):
            watched = all_watched(observers, block)
            run = BlockRun(self.model, self.parts, block, shared, watched, self.threads)
            _observe(run, block, streams, results, observers, batch)
            rewritten = {v: a for one in observers for v, a in one.rewrite(block).items()}
            if rewritten:
                run.replace(rewritten)
                for chunk in chunks(windows, batch):
                    results[chunk], _ = run.run(streams[0][chunk])
            streams[0], results = results, streams[0]
            del run
            give_back_freed()  # its weights, or each block would leave holes of another size
            if progress is not None:
                progress(index + 1, len(self.parts.blocks))
        return streams[0].reshape(windows * size, -1)

    @property
    def tile_count(self) -> int:
        """How many tiles the head has."""
        return -(-self.vocab_size // VOCAB_TILE)

    def tiles(self) -> Iterator[HeadTile]:
        """The head in tiles over the vocabulary, in order."""
        for start in range(0, self.vocab_size, VOCAB_TILE):
            stop = min(start + VOCAB_TILE, self.vocab_size)
            yield HeadTile(start, stop, self._tail.feeds(start, stop), self._tail.weight)

    def logits(self, hidden: Float32, tile: HeadTile) -> Float32:
        """Logits [R, stop - start] of hidden states [R, D] for one tile of the vocabulary."""
        feeds = tile.feeds | {self._tail.hidden: np.ascontiguousarray(hidden[None])}
        result: Float32 = run_session(self._tail_session, feeds)[0][0]
        return result

    def close(self) -> None:
        """Delete files of hidden states."""
        for folder in self._scratch:
            folder.cleanup()
        self._scratch.clear()
        self._known = None

    def embed(self, tokens: Int32) -> Float32:
        """Embedding rows [W, S, D] of the tokens; each used row is read once."""
        table = self.parts.embedding.const_value
        if table is None:
            raise ValueError("the embedding has no value")
        rows = as_lazy(table)
        hidden = self._allocate((*tokens.shape, rows.rows_shape[1]))
        flat, order = tokens.ravel(), np.argsort(tokens, axis=None, kind="stable")
        used, first = np.unique(flat[order], return_index=True)
        places = np.split(order, first[1:])
        target = hidden.reshape(flat.size, -1)
        for token, where in zip(used.tolist(), places, strict=True):
            target[where] = rows.read_rows(token, token + 1).astype(np.float32, copy=False)
        return hidden

    def _copy(self, hidden: Float32) -> Float32:
        copy = self._allocate(hidden.shape)
        copy[:] = hidden
        return copy

    def _allocate(self, shape: tuple[int, ...]) -> Float32:
        if int(np.prod(shape)) * 4 <= HIDDEN_BYTES:
            return np.empty(shape, np.float32)
        folder = tempfile.TemporaryDirectory(prefix="optc-hidden-")
        self._scratch.append(folder)
        return np.memmap(Path(folder.name) / "hidden", np.float32, "w+", shape=shape)


def _places(tokens: Int32, known: Int32) -> list[int] | None:
    """Where each of the windows [W, S] lies among known ones; None where one does not."""
    places = {window.tobytes(): index for index, window in enumerate(known)}
    found = [places.get(window.tobytes()) for window in np.ascontiguousarray(tokens, known.dtype)]
    rows = [place for place in found if place is not None]
    same = tokens.shape[1] == known.shape[1] and len(rows) == len(found)
    return rows if same else None


def _observe(
    run: BlockRun,
    block: Block,
    streams: Sequence[Float32],
    results: Float32,
    observers: Sequence[BlockObserver],
    batch: int,
) -> None:
    """Run the unchanged block over the streams [W, S, D] and show its values.

    The first stream's results go to ``results``; the second stream, the original one, is replaced
    by its own results.
    """
    for chunk in chunks(len(results), batch):
        ran = [run.run(stream[chunk]) for stream in streams]
        (_, values), (_, original) = ran[0], ran[-1]
        for observer in observers:
            mine = observer.watched(block)
            seen, before = ({v: found[v] for v in mine} for found in (values, original))
            observer.on_values(BlockValues(block, chunk, seen, before))
        # Only now: values of the source are views of the streams.
        for target, (result, _) in zip([results, *streams[1:]], ran, strict=True):
            target[chunk] = result


def chunks(windows: int, batch: int) -> Iterator[slice]:
    """Slices of ``batch`` windows that cover all."""
    for start in range(0, windows, batch):
        yield slice(start, min(start + batch, windows))


def observe(
    model: ir.Model, tokens: Int32, observers: Sequence[BlockObserver], threads: int
) -> None:
    """Show observers the model's blocks while it runs once over windows of tokens [W, S].

    Memory holds one layer in float32 and the hidden states, never the model or its activations.

    Args:
        model: Dense form.
        tokens: Windows; each starts at position 0.
        observers: They see values within its layers, and the head's input.
        threads: Threads of ONNX Runtime.

    Raises:
        optc.errors.UnsupportedError: The model cannot be cut at its layers.
    """
    reference = BlockwiseReference(model, threads)
    try:
        reference.run(tokens, observers, progress=partial(tell, CALIBRATION))
    finally:
        reference.close()
