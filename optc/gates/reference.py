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
import onnxruntime as ort

from optc.gates.partition import Block, Partition, partition
from optc.gates.submodel import (
    Array,
    SubModel,
    extract,
    float_weight,
    open_session,
    run_session,
)
from optc.ir.weights import as_lazy
from optc.runtime.executable import Float32, Int32

#: Told (done, total) layers.
Progress = Callable[[int, int], None]

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
        weight: [D, stop - start] float32.
    """

    start: int
    stop: int
    weight: Float32


@dataclass(frozen=True)
class _Tail:
    """Session of the head and the tail for a tile, its inputs' names, and arrays that have a
    value per vocabulary entry."""

    session: ort.InferenceSession
    hidden: str
    weight: str
    per_entry: tuple[tuple[str, Array], ...]


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
        self._tail = _open_tail(model, self._parts, threads)
        weight = self._parts.head.inputs[1]
        if weight is None or weight.const_value is None:
            raise ValueError("the head has no weight")
        self._head = as_lazy(weight.const_value, transposed=True)
        self._scratch: list[tempfile.TemporaryDirectory[str]] = []

    @property
    def vocab_size(self) -> int:
        """V, the width of the logits."""
        return self._head.rows_shape[0]

    @property
    def blocks(self) -> int:
        """Number of parts that are run one after the other."""
        return len(self._parts.blocks)

    def hidden_states(self, tokens: Int32, progress: Progress | None = None) -> Float32:
        """Inputs of the head, [W * S, D], for windows of tokens [W, S] at positions 0 … S - 1.

        The result may be memory-mapped; it is valid as long as this object lives.
        """
        windows, size = tokens.shape
        hidden = self._embed(tokens)
        batch = max(1, BLOCK_ROWS // size)
        shared = self._shared(min(batch, windows), size)
        for index, block in enumerate(self._parts.blocks):
            self._run_block(block, hidden, shared, batch)
            if progress is not None:
                progress(index + 1, len(self._parts.blocks))
        return hidden.reshape(windows * size, -1)

    def tiles(self) -> Iterator[HeadTile]:
        """The head in tiles over the vocabulary, in order."""
        for start in range(0, self.vocab_size, VOCAB_TILE):
            stop = min(start + VOCAB_TILE, self.vocab_size)
            rows = self._head.read_rows(start, stop).astype(np.float32, copy=False)
            yield HeadTile(start, stop, np.ascontiguousarray(rows.T))

    def logits(self, hidden: Float32, tile: HeadTile) -> Float32:
        """Logits [R, stop - start] of hidden states [R, D] for one tile of the vocabulary."""
        tail = self._tail
        feeds = {
            name: np.ascontiguousarray(a[..., tile.start : tile.stop]) for name, a in tail.per_entry
        }
        feeds |= {tail.hidden: np.ascontiguousarray(hidden[None]), tail.weight: tile.weight}
        result: Float32 = run_session(tail.session, feeds)[0][0]
        return result

    def close(self) -> None:
        """Delete files of hidden states."""
        for folder in self._scratch:
            folder.cleanup()
        self._scratch.clear()

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

    def _shared(self, batch: int, size: int) -> dict[str, Array]:
        """Values of positions by name (cos and sin), for ``batch`` windows."""
        parts = self._parts
        if not parts.shared:
            return {}
        positions = self._model.graph.inputs[1]
        part = extract(self._model, parts.position_nodes, [positions], parts.shared)
        feeds = _weights(part)
        feeds[positions.name or ""] = np.tile(np.arange(size, dtype=np.int64), (batch, 1))
        results = run_session(open_session(part.model, self._threads), feeds)
        return {v.name or "": array for v, array in zip(parts.shared, results, strict=True)}

    def _run_block(
        self, block: Block, hidden: Float32, shared: dict[str, Array], batch: int
    ) -> None:
        """Replace hidden states [W, S, D] by the block's result, ``batch`` windows at a time."""
        inputs = [block.source, *_shared_inputs(block, self._parts)]
        part = extract(self._model, block.nodes, inputs, [block.result])
        session = open_session(part.model, self._threads)
        weights = _weights(part)
        for start in range(0, hidden.shape[0], batch):
            chunk = np.ascontiguousarray(hidden[start : start + batch])
            feeds = {v.name or "": shared[v.name or ""][: len(chunk)] for v in inputs[1:]}
            feeds[block.source.name or ""] = chunk
            hidden[start : start + batch] = run_session(session, weights | feeds)[0]


def _open_tail(model: ir.Model, parts: Partition, threads: int) -> _Tail:
    hidden, weight = parts.head.inputs[:2]
    if hidden is None or weight is None:
        raise ValueError("the head lacks an operand")
    per_entry = _per_entry_values(parts, _size(weight))
    part = extract(
        model,
        [parts.head, *parts.tail_nodes],
        [hidden, weight, *per_entry],
        [model.graph.outputs[0]],
    )
    _forget_shapes(part.model.graph)  # V is a tile's width here
    return _Tail(
        open_session(part.model, threads),
        hidden.name or "",
        weight.name or "",
        tuple((v.name or "", float_weight(v)) for v in per_entry),
    )


def _per_entry_values(parts: Partition, vocab_size: int) -> list[ir.Value]:
    """Initializers of the tail that hold a number per vocabulary entry (a bias)."""
    operands = {id(v): v for n in parts.tail_nodes for v in n.inputs if v is not None}
    return [v for v in operands.values() if v.is_initializer() and _size(v) == vocab_size]


def _size(value: ir.Value) -> int:
    """Length of the last axis of an initializer; 1 for a scalar."""
    shape = value.const_value.shape.numpy() if value.const_value is not None else ()
    return int(shape[-1]) if shape else 1


def _forget_shapes(graph: ir.Graph) -> None:
    for value in (*graph.inputs, *(v for node in graph for v in node.outputs)):
        value.shape = None


def _shared_inputs(block: Block, parts: Partition) -> list[ir.Value]:
    read = {id(v) for node in block.nodes for v in node.inputs if v is not None}
    return [v for v in parts.shared if id(v) in read]


def _weights(part: SubModel) -> dict[str, Array]:
    return {value.name or "": float_weight(value) for value in part.weights}
