"""The LoRA adapters of a loaded CUDA engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from optc.backends.tvm.loaded.adapter_pools import checked, pool_shapes
from optc.backends.tvm_cuda.loaded.device import Device
from optc.runtime.executable.adapter_spec import AdapterSpec, ModuleWeights

_FLOAT_BYTES = 4


class DeviceAdapters:
    """A and B of every module and slot in device memory, zeros until they are written."""

    def __init__(self, spec: AdapterSpec | None, device: Device) -> None:
        self._spec = spec
        self._device = device
        self._shapes = pool_shapes(spec)
        self.tensors: list[Any] = [
            device.copy_of(np.zeros(shape, np.float32)) for shape in self._shapes
        ]

    def write(self, slot: int, modules: Sequence[ModuleWeights | None]) -> None:
        """Set one slot, modules without weights to zero.

        Raises:
            InputError: The engine has no such slot, or a shape does not fit.
        """
        for index, weights in enumerate(checked(self._spec, slot, modules)):
            self._set(2 * index, slot, None if weights is None else weights.a)
            self._set(2 * index + 1, slot, None if weights is None else weights.b)

    def _set(self, pool: int, slot: int, array: Any) -> None:
        _, *shape = self._shapes[pool]
        size = math.prod(shape) * _FLOAT_BYTES
        part = self._device.bytes_of(self.tensors[pool], slot * size, size)
        values = np.zeros(shape, np.float32) if array is None else array
        self._device.upload(np.ascontiguousarray(values, np.float32), part)

    def release(self) -> None:
        """Drop all pools."""
        self.tensors.clear()
