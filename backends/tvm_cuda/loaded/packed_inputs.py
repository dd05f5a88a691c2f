"""Inputs of steps, next to each other: one copy to the device a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from optc.backends.tvm.loaded.input_memory import ALIGNMENT, Placed, grown
from optc.backends.tvm_cuda.loaded.device import Device
from optc.runtime.executable.executable import Int32

#: Inputs start at a multiple of so many elements.
_STEP = ALIGNMENT // 4


class PackedInputs:
    """One run of pinned host memory and one of the device, shared by all shapes of steps: a step is
    over before the next one's inputs are filled in.

    Graphs read where the inputs of their shape were placed. When memory moves, the inputs placed in
    it before are forgotten, and so are graphs that read them.

    Args:
        device: Where the engine reads.
        sizes: Elements that inputs have at most, as far as that is known.
    """

    def __init__(self, device: Device, sizes: Mapping[str, int]) -> None:
        self._device = device
        self._capacity = 0
        self._pinned: Any = None
        self._tensor: Any = None
        self._host: Int32 = np.zeros(0, np.int32)
        self._reserve(sum(map(_rounded, sizes.values())))

    def place(self, shapes: Mapping[str, tuple[int, ...]]) -> Placed:
        """Views in order, each at a multiple of 64 bytes."""
        counts = {name: int(np.prod(dims)) for name, dims in shapes.items()}
        total = sum(map(_rounded, counts.values()))
        moved = self._reserve(total)
        views, tensors, start = {}, {}, 0
        for name, dims in shapes.items():
            views[name] = self._host[start : start + counts[name]].reshape(dims)
            tensors[name] = self._device.part(self._tensor, dims, 4 * start)
            start += _rounded(counts[name])
        # a view keeps the memory that the tensors are parts of
        both = (self._device.view(one, (total,), "int32") for one in (self._pinned, self._tensor))
        return Placed(views, tensors, tuple(both), moved)

    def _reserve(self, needed: int) -> bool:
        """Make room for so many elements; whether memory moved."""
        if needed <= self._capacity:
            return False
        self._capacity = grown(needed, self._capacity)
        self._pinned, self._host = self._device.pinned(self._capacity)
        self._tensor = self._device.empty((self._capacity,), "int32")
        return True


def _rounded(count: int) -> int:
    return -(-count // _STEP) * _STEP
