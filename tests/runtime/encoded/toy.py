"""An engine whose logits say what it attends to: a decoder of steps in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import structs

from optc.runtime.executable.executable import (
    Float32,
    Int32,
    KVGroup,
    LayerKV,
    StepBatch,
    StepInterface,
)

VOCABULARY, STATES = 100, 40
SPEC = StepInterface(
    vocab_size=VOCABULARY,
    max_context=12,
    max_rows=8,
    max_sequences=3,
    max_logit_rows=4,
    block_multiple=16,
    batch_invariant=True,
    groups=(KVGroup(0, (0,)), KVGroup(0, (1,))),
    layers=(LayerKV(0, 1, 1, 1, "float32"), LayerKV(1, 1, 1, 1, "float32")),
    encoded=STATES,
)


def spec_of_many(vocabulary: int) -> StepInterface:
    """The same for longer texts, and more of them at once."""
    return structs.replace(
        SPEC,
        vocab_size=vocabulary,
        max_context=20,
        max_rows=24,
        max_sequences=6,
        max_logit_rows=24,
    )


class Toy:
    """The likeliest token behind a row is the sum of its sequence's tokens so far and of its
    states, of which there are the keys alone, mod `VOCABULARY`.

    Attributes:
        steps: By step, the rows of each sequence.
    """

    spec = SPEC

    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        self.closed = False
        self._pools: list[Int32] = []
        self._block = 0

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        self._block = block_size
        self._pools = [np.zeros(count * block_size, np.int32) for count in blocks_per_group]

    def write_encoded(self, slots: Int32, states: Sequence[Float32]) -> None:
        self._pools[1][slots] = states[0][:, 0]

    def step(self, batch: StepBatch) -> Float32:
        assert len(batch.tokens) <= self.spec.max_rows
        assert 0 < len(batch.logit_rows) <= self.spec.max_logit_rows
        written = batch.slot_mapping[0]
        assert (self._pools[0].size > written).all()
        assert (batch.slot_mapping[1] == -1).all()
        self._pools[0][written] = batch.tokens
        found = np.zeros((len(batch.tokens), self.spec.vocab_size), np.float32)
        counts = np.diff(batch.query_starts)
        self.steps.append(counts.tolist())
        for b, count in enumerate(counts):
            length = int(batch.kv_lengths[0, b])
            own = self._read(0, batch.block_tables[0, b], length)
            states = self._read(1, batch.block_tables[1, b], int(batch.kv_lengths[1, b]))
            for i in range(count):
                place = length - count + i
                row = batch.query_starts[b] + i
                assert batch.positions[row] == place
                found[row] = self.logits(own[: place + 1], states)
        return found[batch.logit_rows]

    def logits(self, own: Int32, states: Int32) -> Float32:
        """Behind a sequence's tokens."""
        found = np.zeros(VOCABULARY, np.float32)
        found[(own.sum() + states.sum()) % VOCABULARY] = 1
        return found

    def _read(self, group: int, table: Int32, count: int) -> Int32:
        places = np.arange(count)
        return self._pools[group][table[places // self._block] * self._block + places % self._block]

    def close(self) -> None:
        self.closed = True
