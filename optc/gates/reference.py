"""The float32 reference: a dense-form model on ONNX Runtime, one decoder layer at a time.

All windows go through one layer before the next layer's weights are read, so that the memory
needed is one layer in float32 and the hidden states, never the model. The head is evaluated for
tiles of the vocabulary from the kept last hidden states.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from optc.gates.partition import Block, Partition, partition
from optc.gates.pieces import HeadTail, block_inputs, evaluate_shared
from optc.gates.submodel import Array, extract, open_session, run_session
from optc.ir.weights import as_lazy
from optc.runtime.executable import Float32, Int32

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
    """

    start: int
    stop: int
    feeds: dict[str, Array]


class BlockwiseReference:
    """Hidden states and logits of a dense-form model in float32.

    Args:
        model: Dense form, as `canonicalize` leaves it (inputs input_ids and position_ids).
        threads: Threads of ONNX Runtime.

    Raises:
        optc.errors.UnsupportedError: The model cannot be cut (see `partition`).
    """

    def __init__(self, model: ir.Model, threads: int) -> None:
        self._model = model
        self._threads = threads
        self._parts: Partition = partition(model)
        self._tail = HeadTail(model, self._parts, by_rows=True)
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
        tokens: several engines are compared with one run.
        """
        if self._known is not None and np.array_equal(self._known[0], tokens):
            return self._known[1]
        windows, size = tokens.shape
        hidden = self._embed(tokens)
        batch = min(windows, max(1, BLOCK_ROWS // size))
        positions = np.tile(np.arange(size, dtype=np.int64), (batch, 1))
        shared = evaluate_shared(self._model, self._parts, positions, self._threads)
        for index, block in enumerate(self._parts.blocks):
            self._run_block(block, hidden, shared, batch)
            if progress is not None:
                progress(index + 1, len(self._parts.blocks))
        self._known = tokens.copy(), hidden.reshape(windows * size, -1)
        return self._known[1]

    def tiles(self) -> Iterator[HeadTile]:
        """The head in tiles over the vocabulary, in order."""
        for start in range(0, self.vocab_size, VOCAB_TILE):
            stop = min(start + VOCAB_TILE, self.vocab_size)
            yield HeadTile(start, stop, self._tail.feeds(start, stop))

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

    def _embed(self, tokens: Int32) -> Float32:
        """Embedding rows [W, S, D] of the tokens; each used row is read once."""
        table = self._parts.embedding.const_value
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

    def _allocate(self, shape: tuple[int, ...]) -> Float32:
        if int(np.prod(shape)) * 4 <= HIDDEN_BYTES:
            return np.empty(shape, np.float32)
        folder = tempfile.TemporaryDirectory(prefix="optc-hidden-")
        self._scratch.append(folder)
        return np.memmap(Path(folder.name) / "hidden", np.float32, "w+", shape=shape)

    def _run_block(
        self, block: Block, hidden: Float32, shared: dict[str, Array], batch: int
    ) -> None:
        """Replace hidden states [W, S, D] by the block's result, ``batch`` windows at a time."""
        inputs = block_inputs(block, self._parts)
        part = extract(self._model, block.nodes, inputs, [block.result])
        session = open_session(part.model, self._threads)
        weights = part.feeds()
        for start in range(0, hidden.shape[0], batch):
            chunk = np.ascontiguousarray(hidden[start : start + batch])
            feeds = {v.name or "": shared[v.name or ""][: len(chunk)] for v in inputs[1:]}
            feeds[block.source.name or ""] = chunk
            hidden[start : start + batch] = run_session(session, weights | feeds)[0]
