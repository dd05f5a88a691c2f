"""Run `ir.Model`s in ONNX Runtime, dense or as ragged steps, as the oracle of passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator

from optc.ir.forms.ragged import RaggedStep

Array = npt.NDArray[Any]


def session(model: ir.Model) -> ort.InferenceSession:
    """An ONNX Runtime session of the model as it is, weights included."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(model: ir.Model, inputs: Mapping[str, Array]) -> list[Array]:
    """Outputs of one run."""
    results: list[Array] = session(model).run(None, dict(inputs))
    return results


def run_exactly(model: ir.Model, inputs: Mapping[str, Array]) -> list[Array]:
    """Outputs of one run as ONNX defines them: on CPUs with AVX2 alone, ONNX Runtime's kernels over
    integers saturate, and say nothing of the graph."""
    results: list[Array] = ReferenceEvaluator(ir.to_proto(model)).run(None, dict(inputs))
    return results


def run_dense(model: ir.Model, tokens: Sequence[int]) -> Array:
    """Logits [S, V] of one sequence through a dense-form model."""
    ids = np.array([tokens], np.int64)
    positions = np.arange(len(tokens), dtype=np.int64)[None]
    logits: Array = run(model, {"input_ids": ids, "position_ids": positions})[0][0]
    return logits


@dataclass
class RaggedDriver:
    """Drives a ragged-step model, with block tables in scrambled order and blocks released.

    Sequences are named by any integer; each call of `step` appends rows to some of them.
    """

    model: ir.Model
    block_size: int = 16
    blocks: int = 24
    seed: int = 0
    padding: int = 0
    extra: tuple[str, ...] = ()
    more_feeds: dict[str, Array] = field(default_factory=dict)
    more_results: list[Array] = field(default_factory=list)
    lengths: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.session = session(self.model)
        kv = RaggedStep.of(self.model).kv
        self.windows = [group.window for group in kv.groups]
        self.pools: dict[str, Array] = {}
        rng = np.random.default_rng(self.seed)
        for index, layer in enumerate(kv.layers):
            for kind, dim in (("k", layer.key_dim), ("v", layer.value_dim)):
                shape = (self.blocks, layer.kv_heads, self.block_size, dim)
                # garbage in the pools must not be seen
                self.pools[f"{kind}_pool.{index}"] = rng.standard_normal(shape).astype(np.float32)
        self.free = [list(rng.permutation(self.blocks)) for _ in self.windows]
        self.tables: list[dict[int, list[int]]] = [{} for _ in self.windows]

    def step(
        self,
        rows: Mapping[int, Sequence[int]],
        wanted: Sequence[int] | None = None,
        parents: Array | None = None,
    ) -> Array:
        """Run tokens of several sequences in one step; logits of all real rows, or ``wanted``.
        ``parents`` is the step's ``tree_parent`` [T]."""
        tokens = [t for sequence in rows.values() for t in sequence]
        starts = np.cumsum([0, *(len(sequence) for sequence in rows.values())])
        positions = [
            self.lengths.get(s, 0) + i for s, sequence in rows.items() for i in range(len(sequence))
        ]
        if parents is not None:
            for row, parent in enumerate(parents):
                if parent >= 0:
                    positions[row] = positions[parent] + 1
        for s, sequence in rows.items():
            self.lengths[s] = self.lengths.get(s, 0) + len(sequence)
        slots = self._slots(rows)
        pad = [0] * self.padding
        feeds: dict[str, Array] = {
            "tokens": np.array(tokens + pad, np.int32),
            "positions": np.array(positions + pad, np.int32),
            "slot_mapping": np.array([g + [-1] * self.padding for g in slots], np.int32),
            "query_starts": starts.astype(np.int32),
            "kv_lengths": np.array([[self.lengths[s] for s in rows]] * len(slots), np.int32),
            "block_tables": self._block_tables(rows),
            "logit_rows": np.array(
                range(len(tokens)) if wanted is None else list(wanted), np.int32
            ),
            **self.pools,
            **self.more_feeds,
        }
        if parents is not None:
            feeds["tree_parent"] = np.append(parents, [-1] * self.padding).astype(np.int32)
        used = {value.name for value in self.session.get_inputs()}
        logits, *pools = self.session.run(None, {k: v for k, v in feeds.items() if k in used})
        if self.extra:
            pools, self.more_results = pools[: len(self.pools)], pools[len(self.pools) :]
        self.pools = dict(zip(self.pools, pools, strict=True))
        result: Array = logits
        return result

    def _slots(self, rows: Mapping[int, Sequence[int]]) -> list[list[int]]:
        """Slots of the new rows in each group, after growing the tables."""
        result = []
        for table, free in zip(self.tables, self.free, strict=True):
            slots = []
            for s, sequence in rows.items():
                blocks = table.setdefault(s, [])
                while len(blocks) * self.block_size < self.lengths[s]:
                    blocks.append(int(free.pop()))
                for index in range(self.lengths[s] - len(sequence), self.lengths[s]):
                    block = blocks[index // self.block_size]
                    slots.append(block * self.block_size + index % self.block_size)
            result.append(slots)
        return result

    def _block_tables(self, rows: Mapping[int, Sequence[int]]) -> Array:
        """[G, B, P]; blocks wholly behind the window are released (-1)."""
        longest = max(len(self.tables[0][s]) for s in rows)
        array = np.full((len(self.tables), len(rows), longest), -1, np.int32)
        for g, (table, window) in enumerate(zip(self.tables, self.windows, strict=True)):
            for b, (s, sequence) in enumerate(rows.items()):
                oldest = self.lengths[s] - len(sequence)  # index of the oldest new row
                first = max(0, oldest - window + 1) // self.block_size if window else 0
                array[g, b, first : len(table[s])] = table[s][first:]
        return array
