"""An `Executable` over a dense-form model: keeps token ids where an engine keeps K and V."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from optc.runtime.executable.executable import KVGroup, LayerKV, StepBatch, StepInterface
from tests.support.dense_models import HEAD, HKV, V


class RecomputingEngine:
    """Every row's logits come from running the whole sequence again.

    ``disturb`` maps logits [R, V] to what the engine returns.
    """

    def __init__(self, model: ir.Model, *, disturb=lambda logits: logits, **limits: int) -> None:
        self.session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
        self.disturb = disturb
        self.steps: list[int] = []
        self.pools: list[np.ndarray] = []
        sizes = {"max_context": 64, "max_rows": 16, "max_sequences": 4, "max_logit_rows": 5}
        self.spec = StepInterface(
            vocab_size=V,
            block_multiple=8,
            batch_invariant=True,
            groups=(KVGroup(0, (0,)), KVGroup(4, (1,))),
            layers=(LayerKV(0, HKV, HEAD, HEAD, "float32"), LayerKV(1, HKV, HEAD, HEAD, "float32")),
            **{**sizes, **limits},
        )

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        assert block_size % self.spec.block_multiple == 0
        self.block_size = block_size
        self.pools = [np.full(blocks * block_size, -1) for blocks in blocks_per_group]

    def step(self, batch: StepBatch) -> np.ndarray:
        assert len(batch.tokens) <= self.spec.max_rows
        assert len(batch.logit_rows) <= self.spec.max_logit_rows
        self.steps.append(len(batch.tokens))
        for pool, slots in zip(self.pools, batch.slot_mapping, strict=True):
            pool[slots[slots >= 0]] = batch.tokens[slots >= 0]
        rows = np.concatenate([self.rows(batch, b) for b in range(len(batch.query_starts) - 1)])
        return self.disturb(rows[batch.logit_rows])

    def rows(self, batch: StepBatch, b: int) -> np.ndarray:
        new = batch.query_starts[b + 1] - batch.query_starts[b]
        sequences = [self.sequence(batch, g, b) for g in range(len(self.pools))]
        assert all(np.array_equal(s, sequences[0]) for s in sequences)
        ids = sequences[0][None].astype(np.int64)
        positions = np.arange(ids.shape[1], dtype=np.int64)[None]
        starts, ends = batch.query_starts[b], batch.query_starts[b + 1]
        np.testing.assert_array_equal(positions[0, -new:], batch.positions[starts:ends])
        return self.session.run(None, {"input_ids": ids, "position_ids": positions})[0][0, -new:]

    def sequence(self, batch: StepBatch, g: int, b: int) -> np.ndarray:
        index = np.arange(batch.kv_lengths[g, b])
        blocks = batch.block_tables[g, b, index // self.block_size]
        return self.pools[g][blocks * self.block_size + index % self.block_size]

    def copy_kv(self, group: int, src_slots: np.ndarray, dst_slots: np.ndarray) -> None:
        self.pools[group][dst_slots] = self.pools[group][src_slots]

    def close(self) -> None:
        self.pools = []
