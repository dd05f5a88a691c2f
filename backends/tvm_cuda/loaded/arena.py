"""Memory for what captured steps compute between their kernels, shared by all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optc.backends.tvm.replay.recording import KernelCall, Recording
from optc.backends.tvm.replay.replay_plan import check_apart, uses_of
from optc.backends.tvm_cuda.loaded.device import Device

#: Buffers start at a multiple of so many bytes, and are no smaller.
_LEAST = 256


class Arena:
    """Places a recorded step's tensors.

    Buffers are numbered as they appear in a step, in the same order whatever its shape, because the
    compiler planned them. One that is too small for a step is replaced by one whose size is a
    power of two; graphs captured before go on with the old one, so that all of them take at most
    four times the largest step's memory.

    Args:
        device: Where the memory is.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._buffers: list[Any] = []
        self._sizes: list[int] = []

    def place(self, recording: Recording, outside: Sequence[Any]) -> list[KernelCall]:
        """The recorded calls with all tensors but those of ``outside`` in this memory, holding what
        they held.

        Raises:
            NotReplayableError: Not all of the step are kernels on tensors, or tensors overlap in
                part.
        """
        uses = uses_of(recording)
        check_apart(uses)
        sizes: dict[int, int] = {}  # by address, in order of appearance
        given = {tensor.data_ptr() for tensor in outside}
        for use in uses:
            if use.start not in given:
                sizes[use.start] = max(sizes.get(use.start, 0), use.end - use.start)
        buffers = {
            start: self._reserve(number, size) for number, (start, size) in enumerate(sizes.items())
        }
        calls = []
        for call in recording.calls:
            moved = []
            for tensor in call.arguments:
                start = tensor.data_ptr()
                if start not in buffers:
                    moved.append(tensor)
                    continue
                view = self._device.view(buffers[start], tensor.shape, tensor.dtype)
                # constants of the virtual machine are read from here as well
                self._device.copy(tensor, view)
                moved.append(view)
            calls.append(KernelCall(call.name, tuple(moved)))
        return calls

    def _reserve(self, number: int, size: int) -> Any:
        if number == len(self._buffers):
            self._buffers.append(None)
            self._sizes.append(0)
        if self._sizes[number] < size:
            self._sizes[number] = max(1 << (size - 1).bit_length(), _LEAST)
            self._buffers[number] = self._device.empty((self._sizes[number],), "uint8")
        return self._buffers[number]
