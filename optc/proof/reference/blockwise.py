"""The float32 reference: a dense-form model in PyTorch, one decoder layer at a time.

All windows go through one layer before the next layer's weights are read, so that the memory
needed is one layer in float32 and the hidden states, never the model. The head is evaluated for
tiles of the vocabulary from the kept last hidden states. Observers see the values of each block
while the model runs, and may rewrite it (`optc.proof.reference.observers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir

from optc.ir.weights import LazyWeight, as_lazy
from optc.proof.reference.block_run import BlockRun
from optc.proof.reference.observers import BlockObserver, BlockValues, all_watched
from optc.proof.reference.partition import Block, Partition, partition
from optc.proof.reference.pieces import evaluate_shared
from optc.proof.reference.running.head import Head, HeadTile
from optc.proof.reference.running.rows import total_width
from optc.proof.reference.running.window_states import WindowStates
from optc.proof.reference.submodel import Array
from optc.runtime.executable.executable import Float32, Int32
from optc.system.processes.process_memory import give_back_freed
from optc.system.progress import tell
from optc.system.room import mapped_array
from optc.system.scratch import Scratch

#: The stage in reports of progress.
CALIBRATION = "calibration"
#: Told (done, total) blocks.
BlockProgress = Callable[[int, int], None]

#: Rows per run of a block: enough to amortize the packing of its weights.
BLOCK_ROWS = 1024
#: Hidden states beyond this many bytes are kept in a file.
HIDDEN_BYTES = 256 << 20
#: Growth of the groups of windows that run at once: where weights stay, and where each group has
#: to read them again.
_GROWTH, _READ_GROWTH = 2, 4


class BlockwiseReference:
    """Hidden states and logits of a dense-form model in float32.

    Args:
        model: Dense form, as `canonicalize` leaves it (inputs input_ids and position_ids).
        threads: Threads of a CPU.
        kept_bytes: The whole model stays open from one run to the next where its float32 weights
            take no more than this.

    Attributes:
        model: The model.
        threads: Threads of a CPU.
        parts: The model in pieces: what observers name blocks and values by.

    Raises:
        optc.errors.UnsupportedError: The model cannot be cut (see `partition`).
    """

    def __init__(self, model: ir.Model, threads: int, kept_bytes: int = 0) -> None:
        self.model = model
        self.threads = threads
        self.parts: Partition = partition(model)
        self._keeps = 4 * _elements(model) <= kept_bytes
        self._head = Head(model, self.parts, threads, keeps=self._keeps)
        self._scratch: list[Scratch] = []
        self._states: WindowStates | None = None
        self._open: dict[int, BlockRun] = {}

    @property
    def vocab_size(self) -> int:
        """V, the width of the logits."""
        return self._head.vocab_size

    def hidden_states(self, tokens: Int32, progress: BlockProgress | None = None) -> Float32:
        """Inputs of the head, [W * S, D], for windows of tokens [W, S] at positions 0 … S - 1.

        The result may be memory-mapped; it is valid until `close`, and given again for the same
        tokens.
        """
        return self.window_states(tokens, progress).all()

    def window_states(self, tokens: Int32, progress: BlockProgress | None = None) -> WindowStates:
        """Hidden states of windows of tokens [W, S], each computed when it is asked for.

        The states of the call before this one are used up to the first window that it did not
        compute: several engines are compared with one run, and a trial of a few windows is no
        waste.
        """
        known = self._states
        if known is not None and np.array_equal(known.tokens, tokens):
            return known
        size = tokens.shape[1]
        room = self._allocate((*tokens.shape, self._width))
        growth = _GROWTH if self._keeps else _READ_GROWTH
        states = WindowStates(
            tokens,
            room,
            lambda group: self.run(group, progress=progress),
            max(1, BLOCK_ROWS // size),
            growth,
        )
        if known is not None:
            states.take(known)
        if known is None or len(tokens) >= len(known.tokens):  # a trial leaves what is known
            self._states = states
        return states

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
            columns = total_width(block.gives) if block.carried or block.passed else self._width
            results, *others = (self._of_width(one, columns) for one in (results, *streams[1:]))
            run = self._block_run(index, shared, observers)
            _observe(run, block, streams, [results, *others], observers, batch)
            rewritten = {v: a for one in observers for v, a in one.rewrite(block).items()}
            if rewritten:
                run.replace(rewritten)
                for chunk in chunks(windows, batch):
                    results[chunk], _ = run.run(streams[0][chunk])
            streams, results = [results, *others], streams[0] if observers else results
            del run
            if not self._keeps:
                give_back_freed()  # its weights, or each block would leave holes of another size
            if progress is not None:
                progress(index + 1, len(self.parts.blocks))
        return streams[0].reshape(windows * size, -1)

    def _block_run(
        self, index: int, shared: dict[str, Array], observers: Sequence[BlockObserver]
    ) -> BlockRun:
        """A block, opened; kept open where the model is and nobody watches or rewrites it."""
        if index in self._open and not observers:
            self._open[index].share(shared)
            return self._open[index]
        block = self.parts.blocks[index]
        watched = all_watched(observers, block)
        run = BlockRun(self.model, self.parts, block, shared, watched, self.threads)
        if self._keeps and not observers:
            self._open[index] = run
        return run

    @property
    def tile_count(self) -> int:
        """The number of tiles of the head."""
        return self._head.tile_count

    def tiles(self) -> Iterator[HeadTile]:
        """The head in tiles over the vocabulary, in order."""
        return self._head.tiles()

    def logits(self, hidden: Float32, tile: HeadTile) -> Float32:
        """Logits [R, stop - start] of hidden states [R, D] for one tile of the vocabulary."""
        return self._head.logits(hidden, tile)

    def let_go(self) -> None:
        """Give back the memory of weights that are kept open; they are opened again when needed."""
        self._open = {}
        self._head.let_go()
        give_back_freed()

    def close(self) -> None:
        """Delete files of hidden states."""
        for folder in self._scratch:
            folder.cleanup()
        self._scratch.clear()
        self._known = None

    def embed(self, tokens: Int32) -> Float32:
        """Rows [W, S, D + …] of the tokens in the embedding, and beside them in other tables that
        tokens are looked up in; each used row is read once."""
        tables = [_rows_of(table) for table in self.parts.tables]
        hidden = self._allocate((*tokens.shape, sum(rows.rows_shape[1] for rows in tables)))
        flat, order = tokens.ravel(), np.argsort(tokens, axis=None, kind="stable")
        used, first = np.unique(flat[order], return_index=True)
        places = np.split(order, first[1:])
        target = hidden.reshape(flat.size, -1)
        for token, where in zip(used.tolist(), places, strict=True):
            rows = [table.read_rows(token, token + 1) for table in tables]
            target[where] = np.concatenate(rows, axis=1, dtype=np.float32)
        return hidden

    @property
    def _width(self) -> int:
        """D."""
        return _rows_of(self.parts.embedding).rows_shape[1]

    def _of_width(self, rows: Float32, width: int) -> Float32:
        """Rows [W, S, width]: these, or others."""
        return rows if rows.shape[-1] == width else self._allocate((*rows.shape[:-1], width))

    def _copy(self, hidden: Float32) -> Float32:
        copy = self._allocate(hidden.shape)
        copy[:] = hidden
        return copy

    def _allocate(self, shape: tuple[int, ...]) -> Float32:
        if int(np.prod(shape)) * 4 <= HIDDEN_BYTES:
            return np.empty(shape, np.float32)
        folder = Scratch("hidden")
        self._scratch.append(folder)
        return mapped_array(Path(folder.name) / "hidden", shape, np.float32)


def _rows_of(table: ir.Value) -> LazyWeight:
    if table.const_value is None:
        raise ValueError(f"{table.name} has no value")
    return as_lazy(table.const_value)


def _elements(model: ir.Model) -> int:
    """Of all initializers."""
    values = model.graph.initializers.values()
    return sum(value.const_value.size for value in values if value.const_value is not None)


def _observe(
    run: BlockRun,
    block: Block,
    streams: Sequence[Float32],
    targets: Sequence[Float32],
    observers: Sequence[BlockObserver],
    batch: int,
) -> None:
    """Run the unchanged block over the streams [W, S, D + …] and show its values.

    The results of each go to its target, which may be the stream itself.
    """
    for chunk in chunks(len(targets[0]), batch):
        ran = [run.run(stream[chunk]) for stream in streams]
        (_, values), (_, original) = ran[0], ran[-1]
        for observer in observers:
            mine = observer.watched(block)
            seen, before = ({v: found[v] for v in mine} for found in (values, original))
            observer.on_values(BlockValues(block, chunk, seen, before))
        # Only now: values of the source are views of the streams.
        for target, (result, _) in zip(targets, ran, strict=True):
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
        threads: Threads of a CPU.

    Raises:
        optc.errors.UnsupportedError: The model cannot be cut at its layers.
    """
    reference = BlockwiseReference(model, threads)
    try:
        reference.run(tokens, observers, progress=partial(tell, CALIBRATION))
    finally:
        reference.close()
