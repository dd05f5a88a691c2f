"""`Attending`: an engine of a decoder that attends to an encoder, as a core runs any engine."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import numpy.typing as npt
from msgspec import structs

from optc.runtime.executable.encoded import EncodedExecutable
from optc.runtime.executable.encoder_states import EncoderStates
from optc.runtime.executable.executable import Executable, Float32, Int32, StepBatch
from optc.runtime.executable.sampling import SampleBatch, SampleResult, SamplingExecutable

if TYPE_CHECKING:
    from optc.runtime.executable.adapter_spec import ModuleWeights


class EncodedEngine(Executable, EncodedExecutable, Protocol):
    """An engine of ragged steps whose ``spec.encoded`` is not 0."""


class Attending:
    """The KV groups of the decoder's own tokens are those that the core knows. The last group is
    divided here into places, one for each sequence that may run at once, and a place keeps its
    states until another needs it: requests with the same states share one, and who comes again with
    states that are still there has nothing written. A request that was preempted loses nothing but
    time, because it brings its states along.

    Sequences of a batch that brings no states attend to whatever lies in the first place.

    Args:
        engine: Whose ``spec.encoded`` is not 0; it is closed with this one.
    """

    def __init__(self, engine: EncodedEngine) -> None:
        spec = engine.spec
        self._engine = engine
        self._most = spec.encoded
        self._count = min(spec.max_sequences, spec.max_rows, spec.max_logit_rows)
        self._block_size = self._blocks = 0
        self._held: OrderedDict[str, int] = OrderedDict()  # the one used last at the end
        self.spec = structs.replace(
            spec, groups=spec.groups[:-1], layers=spec.own_layers, encoded=0
        )

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        """As of `Executable`, and room for states; pages that nobody writes take no memory."""
        self._block_size, self._blocks = block_size, -(-self._most // block_size)
        self._held.clear()
        self._engine.allocate_kv((*blocks_per_group, self._blocks * self._count), block_size)

    def step(self, batch: StepBatch) -> Float32:
        """Run one ragged step over sequences and the states of ``batch.encoded``."""
        sequences, rows = batch.block_tables.shape[1], len(batch.tokens)
        if batch.encoded is None:
            places, counts = [0] * sequences, [1] * sequences
        else:
            places = self._places(batch.encoded)
            counts = [one.count for one in batch.encoded]
        groups, _, width = batch.block_tables.shape
        tables = np.full((groups + 1, sequences, max(width, self._blocks)), -1, np.int32)
        tables[:-1, :, :width] = batch.block_tables
        first = np.array(places, np.int32)[:, None] * self._blocks
        tables[-1, :, : self._blocks] = first + np.arange(self._blocks, dtype=np.int32)
        unwritten = np.full((1, rows), -1, np.int32)
        whole = replace(
            batch,
            slot_mapping=np.concatenate([batch.slot_mapping, unwritten]),
            kv_lengths=np.concatenate([batch.kv_lengths, np.array([counts], np.int32)]),
            block_tables=tables,
            encoded=None,
        )
        return self._engine.step(whole)

    def _places(self, encoded: Sequence[EncoderStates]) -> list[int]:
        """The places of a step's states, which are written where they are not there."""
        wanted = {one.key: one for one in encoded}
        for key in wanted.keys() & self._held.keys():
            self._held.move_to_end(key)
        for key, one in wanted.items():
            if key not in self._held:
                place = self._free_place()
                start = place * self._blocks * self._block_size
                slots = np.arange(start, start + one.count, dtype=np.int32)
                self._engine.write_encoded(slots, one.layers)
                self._held[key] = place
        return [self._held[one.key] for one in encoded]

    def _free_place(self) -> int:
        """One that nothing is in, or that was not used for longest; sequences of a step are never
        more than places, and theirs were used last."""
        if len(self._held) < self._count:
            return len(self._held)
        return self._held.popitem(last=False)[1]

    def sample(self, batch: SampleBatch) -> SampleResult:
        """As of `SamplingExecutable`, where ``spec.samples`` holds."""
        return cast("SamplingExecutable", self._engine).sample(batch)

    def copy_kv(self, group: int, src_slots: Int32, dst_slots: Int32) -> None:
        """As of `Executable`."""
        self._engine.copy_kv(group, src_slots, dst_slots)

    def read_blocks(self, group: int, blocks: Int32) -> npt.NDArray[np.uint8]:
        """As of `Executable`."""
        return self._engine.read_blocks(group, blocks)

    def write_blocks(self, group: int, blocks: Int32, data: npt.NDArray[np.uint8]) -> None:
        """As of `Executable`."""
        self._engine.write_blocks(group, blocks, data)

    def write_adapter(self, slot: int, modules: Sequence[ModuleWeights | None]) -> None:
        """As of `Executable`."""
        self._engine.write_adapter(slot, modules)

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()
