"""A loaded engine: an ONNX Runtime session over slots. Needs NumPy and onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.onnxruntime.binding import TYPES, Bindings
from optc.backends.onnxruntime.calls import Call, calls_of, check_step
from optc.backends.onnxruntime.memory import HostMemory
from optc.backends.onnxruntime.slots import MakeMemory, Slots
from optc.errors import InputError
from optc.runtime.executable.adapter_spec import ModuleWeights
from optc.runtime.executable.executable import Float32, Int32, StepBatch, StepInterface


class SlotExecutable:
    """A model in slot form behind `optc.runtime.executable.executable.Executable`. Use it from one
    thread.

    Args:
        session: ``onnxruntime.InferenceSession`` of the model.
        spec: Its limits; ``kv_layout`` is ``slots``.
        memory: Gives memory for slots where the session runs.
    """

    def __init__(self, session: Any, spec: StepInterface, memory: MakeMemory = HostMemory) -> None:
        self.spec = spec
        self._session: Any = session
        past = next(v for v in session.get_inputs() if v.name == "past_k.0")
        length = past.shape[2] if isinstance(past.shape[2], int) else 0
        self._slots = Slots(spec, TYPES[past.type], memory, length)
        self._bindings: Bindings | None = None

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        """Allocate slots of ``block_size`` tokens.

        Raises:
            InputError: Not one group, a size beyond the engine's context, or the engine is closed.
        """
        if self._session is None:
            raise InputError("the engine is closed", where="allocate_kv")
        self._bindings = None
        self._slots.allocate(blocks_per_group, block_size)
        self._bindings = Bindings(self._session, self.spec, self._slots)

    def step(self, batch: StepBatch) -> Float32:
        """Run one step; returns logits [R, V], valid until the next call.

        Raises:
            InputError: The batch exceeds the engine's limits, or no slots were allocated.
        """
        bindings = self._bindings
        if bindings is None:
            raise InputError("no KV slots: call allocate_kv first", where="step")
        check_step(batch, self.spec, self._slots.count, self._slots.tokens)
        calls = list(calls_of(batch, self._slots.lengths))
        place = 0
        for call in calls:
            place += bindings.run(call, place)
        self._slots.lengths[batch.block_tables[0, :, 0]] = batch.kv_lengths[0]
        if len(calls) == 1 and calls[0].logit_rows is batch.logit_rows:
            return bindings.logits[:place]
        return _in_order(bindings.logits, calls, batch)

    def copy_kv(self, group: int, src_slots: Int32, dst_slots: Int32) -> None:
        """Copy K and V of ``src_slots`` [n] to ``dst_slots`` [n] in every layer.

        Raises:
            InputError: A slot lies outside.
        """
        self._slots.copy(src_slots, dst_slots)

    def read_blocks(self, group: int, blocks: Int32) -> npt.NDArray[np.uint8]:
        """Contents [n, bytes] of slots [n]."""
        return self._slots.read(blocks)

    def write_blocks(self, group: int, blocks: Int32, data: npt.NDArray[np.uint8]) -> None:
        """Replace the contents of slots [n] by what `read_blocks` gave."""
        self._slots.write(blocks, data)

    def write_adapter(self, slot: int, modules: Sequence[ModuleWeights | None]) -> None:
        """There are none.

        Raises:
            InputError: Always.
        """
        raise InputError("the engine takes no LoRA adapters", where="onnxruntime engine")

    def close(self) -> None:
        """Release session and slots; the engine cannot be used afterwards."""
        self._bindings = None
        self._session = None
        self._slots.release()


def _in_order(logits: Float32, calls: Sequence[Call], batch: StepBatch) -> Float32:
    """Logits in the order of ``batch.logit_rows``: a view where the calls gave them so."""
    given = np.concatenate([call.logit_rows for call in calls])
    found = np.zeros(batch.tokens.size, np.int64)  # where the logits of each row are
    known = given >= 0
    found[given[known]] = np.flatnonzero(known)
    places = found[batch.logit_rows]
    first = int(places[0])
    if (np.diff(places) == 1).all():
        return logits[first : first + len(places)]
    picked: Float32 = logits[places]
    return picked
