"""An engine whose logits say what it attends to: a decoder of steps in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optc.runtime.encoded.request import Encoded, Float32
from optc.runtime.executable.executable import Int32, KVGroup, LayerKV, StepBatch, StepInterface

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


class Toy:
    """The likeliest token behind a row is the sum of its sequence's tokens so far and of its
    states, of which there are the keys alone, mod `VOCABULARY`.

    Attributes:
        steps: By step, the rows of each sequence.
        broken: Steps fail.
    """

    spec = SPEC

    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        self.broken = self.closed = False
        self._pools: list[Int32] = []
        self._block = 0

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        self._block = block_size
        self._pools = [np.zeros(count * block_size, np.int32) for count in blocks_per_group]

    def write_encoded(self, slots: Int32, states: Sequence[Float32]) -> None:
        self._pools[1][slots] = states[0][:, 0]

    def step(self, batch: StepBatch) -> Float32:
        if self.broken:
            raise ValueError("the step broke")
        assert len(batch.tokens) <= SPEC.max_rows
        assert 0 < len(batch.logit_rows) <= SPEC.max_logit_rows
        written = batch.slot_mapping[0]
        assert (self._pools[0].size > written).all()
        assert (batch.slot_mapping[1] == -1).all()
        self._pools[0][written] = batch.tokens
        found = np.zeros(len(batch.tokens), np.int64)
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
                found[row] = own[: place + 1].sum() + states.sum()
        logits = np.zeros((len(batch.logit_rows), VOCABULARY), np.float32)
        logits[np.arange(len(logits)), found[batch.logit_rows] % VOCABULARY] = 1
        return logits

    def _read(self, group: int, table: Int32, count: int) -> Int32:
        places = np.arange(count)
        return self._pools[group][table[places // self._block] * self._block + places % self._block]

    def close(self) -> None:
        self.closed = True


class Sums:
    """A request of so many tokens; ``heard`` and the tokens are its own."""

    def __init__(
        self, state: int, prompt: Sequence[int], length: int, heard: int = 0, states: int = STATES
    ) -> None:
        keys = np.full((1, 1, states, 1), state, np.float32)
        self.encoded = Encoded({"cross_0": keys, "cross_1": keys}, 0)
        self.prompt, self.heard = list(prompt), heard
        self.found: list[int] = []
        self._length, self._total = length, state * states
        self.first = 0

    def take(self, logits: Float32) -> Sequence[int]:
        tokens = logits.argmax(axis=-1).tolist()
        self.first = self.first or len(tokens)
        self.found += tokens
        return tokens[-1:] if len(self.found) < self._length else ()

    @property
    def expected(self) -> list[int]:
        """What it must have found."""
        tokens = list(self.prompt)
        sums = [sum(tokens[: place + 1]) for place in range(self.heard, len(tokens))]
        found = [(one + self._total) % VOCABULARY for one in sums]
        while len(found) < self._length:
            tokens.append(found[-1])
            found.append((sum(tokens) + self._total) % VOCABULARY)
        return found
