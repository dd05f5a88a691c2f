"""The cost of changed weights: KL(model ‖ model with some weights changed), many changes at once.

All variants go through the model side by side, one block after the other, each from the first block
that it changes on: memory holds one block in float32 and the hidden states, of which more than 256
MiB lie in a temporary file. The head is evaluated in tiles of the vocabulary, and where it is
larger than the layers together, for some of the rows: each variant costs it anew, and would take
longer there than in the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.weights import LazyWeight, as_lazy
from optc.proof.reference.block_run import BlockRun
from optc.proof.reference.blockwise import BLOCK_ROWS, HIDDEN_BYTES, BlockwiseReference, chunks
from optc.proof.reference.partition import Block
from optc.proof.reference.pieces import evaluate_shared
from optc.proof.reference.running.rows import widest
from optc.proof.reference.variants.streaming_kl import StreamingKL
from optc.runtime.executable.executable import Float32, Int32
from optc.system.processes.process_memory import give_back_freed
from optc.system.room import mapped_array
from optc.system.scratch import Scratch

Float64 = npt.NDArray[np.float64]
#: Weights by rows [N, K] that stand in for those of some initializers. The head's also stands in
#: for an embedding that is tied to it.
Variant = Mapping[ir.Value, LazyWeight]
#: Told (done, total) units of about equal work.
Advance = Callable[[int, int], None]
#: Rows of logits that are compared at a time, and rows of an embedding that are read at a time.
_ROWS = 256
#: A multiply-add of the head costs as much as so many of the layers: its logits are compared, too.
_HEAD_COST = 2
#: Of so many rows at least one is compared.
_FARTHEST = 4


def measure_variants(
    model: ir.Model,
    tokens: Int32,
    variants: Sequence[Variant],
    threads: int,
    advance: Advance | None = None,
) -> Float64:
    """The mean KL in nats a token of each variant [n], over windows of tokens [W, S], or over every
    second to fourth token of these where the vocabulary is large beside the layers.

    Args:
        model: Dense form; it is not changed.
        tokens: Windows; each starts at position 0.
        variants: Weights of linear layers only; other initializers are not looked for.
        threads: Threads of a CPU.
        advance: Told how far it is.

    Raises:
        optc.errors.UnsupportedError: The model cannot be cut at its layers.
    """
    reference = BlockwiseReference(model, threads)
    try:
        with Scratch("variants") as folder:
            return _Variants(reference, tokens, variants, Path(folder), advance).run()
    finally:
        reference.close()


@dataclass
class _Streams:
    """The hidden states of the original model, and those of variants that already differ."""

    original: Float32
    changed: dict[int, Float32]


class _Variants:
    """One measurement."""

    def __init__(
        self,
        reference: BlockwiseReference,
        tokens: Int32,
        variants: Sequence[Variant],
        folder: Path,
        advance: Advance | None,
    ) -> None:
        self._reference, self._tokens, self._variants = reference, tokens, variants
        self._head = reference.parts.head.inputs[1]
        self._batch = min(len(tokens), max(1, BLOCK_ROWS // tokens.shape[1]))
        self._advance, self._done = advance, 0
        self._starts = [self._start(variant) for variant in variants]
        self._width = as_lazy(self._table()).rows_shape[1]
        columns = max(self._width, widest(reference.parts.blocks))
        shape = (len(variants), *tokens.shape, columns)
        large = 4 * int(np.prod(shape)) > HIDDEN_BYTES
        self._room: Float32 = (
            mapped_array(folder / "hidden", shape, np.float32)
            if large
            else np.empty(shape, np.float32)
        )

    def run(self) -> Float64:
        """The KL of each variant."""
        streams = self._embedded()
        blocks = self._reference.parts.blocks
        positions = np.tile(np.arange(self._tokens.shape[1], dtype=np.int64), (self._batch, 1))
        shared = evaluate_shared(
            self._reference.model, self._reference.parts, positions, self._reference.threads
        )
        for place, block in enumerate(blocks):
            run = BlockRun(
                self._reference.model,
                self._reference.parts,
                block,
                shared,
                [],
                self._reference.threads,
            )
            self._block(run, block, place, streams)
            del run
            give_back_freed()
        return self._compare(streams)

    def _block(self, run: BlockRun, block: Block, place: int, streams: _Streams) -> None:
        """Take every stream through a block; a variant's own weights are put in for its turn."""
        inside = {v for node in block.nodes for v in node.inputs if v is not None}
        for index, variant in enumerate(self._variants):
            if self._starts[index] > place:
                continue
            source = streams.changed.get(index, streams.original)
            own = {value: weight for value, weight in variant.items() if value in inside}
            if own:
                run.replace({value: _rows(weight) for value, weight in own.items()})
            for chunk in chunks(len(self._tokens), self._batch):
                result = run.run(source[chunk])[0]
                self._room[index][chunk, :, : result.shape[-1]] = result
            streams.changed[index] = self._room[index][..., : result.shape[-1]]
            if own:
                run.restore(own)
            self._tell()
        original = streams.original
        for chunk in chunks(len(self._tokens), self._batch):
            result = run.run(original[chunk])[0]
            if result.shape[-1] != streams.original.shape[-1]:
                streams.original = np.empty((*self._tokens.shape, result.shape[-1]), np.float32)
            streams.original[chunk] = result
        self._tell()

    def _start(self, variant: Variant) -> int:
        """The first block that gives another result with the variant; the number of blocks where
        only the head does, -1 where the embedding differs."""
        blocks = self._reference.parts.blocks
        if self._head in variant and self._is_tied():
            return -1
        for place, block in enumerate(blocks):
            if any(v in variant for node in block.nodes for v in node.inputs if v is not None):
                return place
        return len(blocks)

    def _is_tied(self) -> bool:
        head = self._head.const_value if self._head is not None else None
        return isinstance(head, LazyWeight) and as_lazy(self._table()).read_rows == head.read_rows

    def _table(self) -> ir.TensorProtocol:
        table = self._reference.parts.embedding.const_value
        if table is None:
            raise ValueError("the embedding has no value")
        return table

    def _embedded(self) -> _Streams:
        streams = _Streams(self._reference.embed(self._tokens), {})
        for index, start in enumerate(self._starts):
            if start < 0 and self._head is not None:
                room = self._room[index][..., : streams.original.shape[-1]]
                room[..., self._width :] = streams.original[..., self._width :]
                _look_up(self._variants[index][self._head], self._tokens, room[..., : self._width])
                streams.changed[index] = room
        return streams

    def _compare(self, streams: _Streams) -> Float64:
        apart, width = self._rows_apart(), streams.original.shape[-1]
        original = streams.original.reshape(-1, width)[::apart]
        rows = len(original)
        hidden = [
            streams.changed.get(index, streams.original).reshape(-1, width)[::apart]
            for index in range(len(self._variants))
        ]
        with ThreadPoolExecutor(self._reference.threads, "optc-kl") as pool:
            sums = StreamingKL(rows, len(self._variants), pool)
            for tile in self._reference.tiles():
                heads = [variant.get(self._head) for variant in self._variants if self._head]
                used = [tile if head is None else tile.with_rows(head) for head in heads]
                for part in _parts(rows):
                    z = self._reference.logits(original[part], tile)
                    others = zip(hidden, used, strict=True)
                    logits = (self._reference.logits(one[part], own) for one, own in others)
                    sums.add(part, z, logits)
                self._tell(len(self._variants))
        return sums.means()

    def _rows_apart(self) -> int:
        """Of so many rows one is compared."""
        parts = self._reference.parts
        inside = {v for block in parts.blocks for node in block.nodes for v in node.inputs}
        sizes = [v.const_value.size for v in inside if v is not None and v.const_value is not None]
        head = int(np.prod(as_lazy(self._table()).rows_shape))
        return min(_FARTHEST, max(1, _HEAD_COST * head // max(1, sum(sizes))))

    def _tell(self, units: int = 1) -> None:
        self._done += units
        if self._advance is not None:
            blocks = len(self._reference.parts.blocks)
            runs = sum(blocks - max(start, 0) for start in self._starts) + blocks
            self._advance(self._done, runs + len(self._variants) * self._reference.tile_count)


def _rows(weight: LazyWeight) -> Float32:
    return np.asarray(weight.read_rows(0, weight.rows_shape[0]), np.float32)


def _parts(rows: int) -> Iterator[slice]:
    return (slice(start, min(start + _ROWS, rows)) for start in range(0, rows, _ROWS))


def _look_up(table: LazyWeight, tokens: Int32, out: Float32) -> None:
    """Rows [W, S, D] of ``table`` for tokens [W, S]; rows are read many at a time, as a table that
    is quantized on demand wants it."""
    for part in _parts(table.rows_shape[0]):
        here = np.nonzero((tokens >= part.start) & (tokens < part.stop))
        if len(here[0]):
            out[here] = table.read_rows(part.start, part.stop)[tokens[here] - part.start]
