"""The unoptimized float32 model in ONNX Runtime with a KV cache: the baseline of the speed gates.

Every `optc::Attention` becomes a standard opset-23 Attention with past and present keys and
values, and weights are ordinary initializers, so that ONNX Runtime prepacks and fuses them as it
does for any exported model. The head is evaluated for the last row only, as the engine does. A
model that does not fit in memory is cut into its decoder layers and tiles of the head.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from optc.proof.reference.cached_attention import Cache, MixerCopier, StateBefore
from optc.proof.reference.partition import partition
from optc.proof.reference.pieces import HeadPieces, block_inputs, evaluate_shared
from optc.proof.reference.running.rows import total_width
from optc.proof.reference.submodel import Array, SubModel, extract, open_session, weight_array
from optc.runtime.executable.executable import Int32
from optc.system.full_disk import on_disk_of
from optc.system.room import write_array
from optc.system.scratch import Scratch

#: Vocabulary entries per tile of a head that is timed in tiles.
HEAD_TILE = 32768
#: Offsets of weights in the file that ONNX Runtime maps.
_ALIGNMENT = 4096


@dataclass(frozen=True)
class BaselinePart:
    """A piece of the baseline, open in ONNX Runtime.

    Attributes:
        session: The session.
        feeds: Its inputs for a prefill of P rows, [1, P, …]; caches and masks left out.
        fixed: Inputs that stay the same in every run.
        result: Name of its output.
        caches: Of its mixers of tokens.
    """

    session: ort.InferenceSession
    feeds: dict[str, Array]
    fixed: dict[str, Array]
    result: str
    caches: tuple[Cache | StateBefore, ...] = ()


class Baseline:
    """The unoptimized model, whole or in pieces.

    Args:
        model: Dense form, after `canonicalize`.
        threads: Threads of ONNX Runtime.
        whole: One session for everything; else one decoder layer or tile of the head at a time
            (the embedding's look-up, some microseconds, is then left out).

    Attributes:
        pieces: How many parts `open_parts` gives.
    """

    def __init__(self, model: ir.Model, threads: int, *, whole: bool) -> None:
        self._model = model
        self._threads = threads
        self._parts = partition(model)
        self._tail = HeadPieces(model, self._parts)
        self._whole = whole
        tiles = -(-self._tail.vocab_size // HEAD_TILE)
        self.pieces = 1 if whole else len(self._parts.blocks) + tiles

    def open_parts(self, tokens: Int32) -> Iterator[BaselinePart]:
        """The parts, fed for a prefill of ``tokens`` [P]; each is valid until the next."""
        ids = tokens.astype(np.int64)[None]
        positions = np.arange(len(tokens), dtype=np.int64)[None]
        if self._whole:
            inputs = self._model.graph.inputs[:2]
            feeds = {v.name or "": a for v, a in zip(inputs, (ids, positions), strict=True)}
            result = self._model.graph.outputs[0]
            yield from self._open(list(self._model.graph), inputs, result, feeds)
        else:
            yield from self._layers_and_head(positions)

    def _layers_and_head(self, positions: Array) -> Iterator[BaselinePart]:
        feeds = evaluate_shared(self._model, self._parts, positions, self._threads)
        width = int(_tensor(self._parts.embedding).shape.numpy()[-1])
        rng = np.random.default_rng(0)
        hidden = rng.standard_normal((*positions.shape, width), np.float32)
        for block in self._parts.blocks:
            for value in block.carried:
                shape = (*positions.shape, total_width([value]))
                feeds[value.name or ""] = rng.standard_normal(shape, np.float32)
            feeds[block.source.name or ""] = hidden
            inputs = block_inputs(block, self._parts)
            given = {v.name or "": feeds[v.name or ""] for v in inputs}
            yield from self._open(block.nodes, inputs, block.result, given)
        yield from self._head_tiles(hidden[:, -1:])

    def _open(
        self,
        nodes: Iterable[ir.Node],
        inputs: Sequence[ir.Value],
        result: ir.Value,
        feeds: dict[str, Array],
    ) -> Iterator[BaselinePart]:
        copier = MixerCopier()
        part = extract(self._model, nodes, inputs, [result], copier=copier)
        _keep_last_row(part.model.graph, self._parts.head)
        copier.finish(part.model)
        with Scratch("baseline") as folder:
            session = open_session(_store(part, Path(folder)), self._threads)
            yield BaselinePart(session, feeds, {}, result.name or "", tuple(copier.caches))

    def _head_tiles(self, last: Array) -> Iterator[BaselinePart]:
        tail = self._tail
        part = extract(self._model, tail.nodes, tail.inputs, [tail.logits])
        for value in (*part.model.graph.inputs, *(v for n in part.model.graph for v in n.outputs)):
            value.shape = None  # the vocabulary is now a tile's width
        session = open_session(part.model, self._threads)
        hidden, weight, *per_entry = (value.name or "" for value in tail.inputs)
        for start in range(0, tail.vocab_size, HEAD_TILE):
            rows, others = tail.tile(start, min(start + HEAD_TILE, tail.vocab_size))
            fixed = {
                weight: np.ascontiguousarray(rows.T),
                **dict(zip(per_entry, others, strict=True)),
            }
            yield BaselinePart(session, {hidden: last}, fixed, tail.logits.name or "")


def _keep_last_row(graph: ir.Graph, head: ir.Node) -> None:
    """Give the copy of the head only the last row [B, 1, D], if the graph holds it."""
    weight = head.inputs[1]
    name = weight.name if weight is not None else ""
    for node in graph:
        if node.op_type == "MatMul" and node.inputs[1] is not None and node.inputs[1].name == name:
            last = ir.Value(name="last_row", const_value=ir.tensor([-1], name="last_row"))
            graph.register_initializer(last)
            gather = ir.node("Gather", [node.inputs[0], last], {"axis": 1})
            graph.insert_before(node, gather)
            node.replace_input_with(0, gather.outputs[0])
            return


def _store(part: SubModel, folder: Path) -> str:
    """Write the part with its weights as initializers in a file beside it; returns its path."""
    graph = part.model.graph
    by_name = {value.name: value for value in part.weights}
    offset = 0
    file_of_weights = folder / "weights"
    with on_disk_of(file_of_weights), file_of_weights.open("wb") as file:
        for copy in [v for v in graph.inputs if v.name in by_name]:
            array = weight_array(by_name[copy.name])
            offset += -offset % _ALIGNMENT
            file.seek(offset)
            write_array(file, array)
            _attach(graph, copy, array, offset, folder)
            offset += array.nbytes
    path = folder / "part.onnx"
    ir.save(part.model, path)
    return str(path)


def _attach(graph: ir.Graph, copy: ir.Value, array: Array, offset: int, folder: Path) -> None:
    graph.inputs.remove(copy)
    copy.const_value = ir.ExternalTensor(
        "weights",
        offset,
        array.nbytes,
        _dtype(copy),
        shape=ir.Shape(array.shape),
        name=copy.name or "",
        base_dir=folder,
    )
    graph.register_initializer(copy)


def _dtype(value: ir.Value) -> ir.DataType:
    if value.dtype is None:
        raise ValueError(f"{value.name} has no type")
    return value.dtype


def _tensor(value: ir.Value) -> ir.TensorProtocol:
    if value.const_value is None:
        raise ValueError(f"{value.name} has no value")
    return value.const_value
