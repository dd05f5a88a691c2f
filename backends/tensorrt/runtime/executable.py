"""`Executable` on a TensorRT engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from optc.backends.tensorrt.limits import Limits
from optc.backends.tensorrt.runtime.engine import ProfileRunner
from optc.backends.tensorrt.runtime.plan import plan_calls
from optc.backends.tensorrt.runtime.slots import Slots
from optc.errors import InputError
from optc.runtime.executable.adapter_spec import ModuleWeights
from optc.runtime.executable.executable import Float32, Int32, StepBatch, StepInterface
from optc.system.hardware.cuda_device import Device


class SlotExecutable:
    """Steps as batched calls over slots (`optc.runtime.executable.executable.Executable`).

    Args:
        spec: The engine's.
        device: Where it runs.
        runners: One for each profile.
        limits: The profiles'.
        slot_length: Tokens that a slot has room for.
    """

    def __init__(
        self,
        spec: StepInterface,
        device: Device,
        runners: Sequence[ProfileRunner],
        limits: Sequence[Limits],
        slot_length: int,
    ) -> None:
        self.spec = spec
        self._device, self._runners, self._limits = device, runners, limits
        self._slot_length = slot_length
        self._slots: Slots | None = None
        self._block_size = 0

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        """Allocate (or replace) the slots, one a block."""
        if not 0 < block_size <= self.spec.max_context:
            raise InputError(
                f"slots of {block_size} tokens do not suit the engine",
                where="block_size",
                hint=f"at most {self.spec.max_context}",
            )
        self._free()
        for runner in self._runners:
            runner.forget_graphs()
        self._block_size = block_size
        (count,) = blocks_per_group
        self._slots = Slots(self._device, self.spec, count, self._slot_length)

    def step(self, batch: StepBatch) -> Float32:
        """Run one ragged step; returns logits [R, V]."""
        slots = self._pools()
        calls = plan_calls(batch, self._limits, self._slot_length)
        outputs = [self._runners[call.profile].run(call, slots) for call in calls]
        self._device.wait()
        logits: Float32 = np.empty((len(batch.logit_rows), self.spec.vocab_size), np.float32)
        for call, output in zip(calls, outputs, strict=True):
            for sequence, row, place in call.results:
                logits[place] = output[sequence, row]
        return logits

    def copy_kv(self, group: int, src_slots: Int32, dst_slots: Int32) -> None:
        """Copy K and V of tokens in every layer; there is one group."""
        self._pools().copy(src_slots, dst_slots, self._block_size)

    def read_blocks(self, group: int, blocks: Int32) -> npt.NDArray[np.uint8]:
        """Contents [n, bytes] of slots."""
        return self._pools().read(blocks)

    def write_blocks(self, group: int, blocks: Int32, data: npt.NDArray[np.uint8]) -> None:
        """Replace the contents of slots by what `read_blocks` gave."""
        self._pools().write(blocks, data)

    def write_adapter(self, slot: int, modules: Sequence[ModuleWeights | None]) -> None:
        """Refused: these engines have no room for adapters."""
        raise InputError("the engine takes no LoRA adapters", where="tensorrt engine")

    def close(self) -> None:
        """Release all device memory."""
        self._device.wait()
        self._free()
        for runner in self._runners:
            runner.close()
        self._device.close()

    def _pools(self) -> Slots:
        if self._slots is None:
            raise InputError("no KV memory was allocated", where="tensorrt engine")
        return self._slots

    def _free(self) -> None:
        if self._slots is not None:
            self._device.wait()
            self._slots.free()
            self._slots = None
