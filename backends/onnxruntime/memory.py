"""Memory of slots: the host's, or a device's that ONNX Runtime allocates."""

from __future__ import annotations

import math
import mmap
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Memory(Protocol):
    """Keys or values of one layer [slots, heads, tokens, width].

    Attributes:
        device: As ONNX Runtime names it: ``cpu`` or ``cuda``.
        shape: Of the whole.
        dtype: Of an element.
    """

    device: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def address(self, slot: int) -> int:
        """Where a slot begins, in the device's addresses."""
        ...

    def load(self) -> Array:
        """The contents, to be read or changed on the host; `store` afterwards."""
        ...

    def store(self, array: Array) -> None:
        """Put back what `load` gave."""
        ...


class HostMemory:
    """Zeroed anonymous pages, which the system hands out on first write."""

    device = "cpu"

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        pages = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
        self._array: Array = np.frombuffer(pages, dtype).reshape(shape)
        self.shape, self.dtype = shape, dtype

    def address(self, slot: int) -> int:
        """Where a slot begins."""
        return int(self._array.ctypes.data) + slot * int(self._array.strides[0])

    def load(self) -> Array:
        """The memory itself."""
        return self._array

    def store(self, array: Array) -> None:
        """Nothing is left to do."""


class DeviceMemory:
    """Zeroed memory of a device. ONNX Runtime moves whole tensors between it and the host, so that
    copying slots, for forks and beams, costs as much as all of it.

    Args:
        runtime: The module ``onnxruntime``.
        device: Its name of the device.
        shape: Of the tensor.
        dtype: Of an element.
    """

    def __init__(
        self, runtime: Any, device: str, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.device, self.shape, self.dtype = device, shape, dtype
        self._value = runtime.OrtValue.ortvalue_from_shape_and_type(shape, dtype.type, device, 0)
        self.store(np.zeros(shape, dtype))

    def address(self, slot: int) -> int:
        """Where a slot begins on the device."""
        size = math.prod(self.shape[1:]) * self.dtype.itemsize
        return int(self._value.data_ptr()) + slot * size

    def load(self) -> Array:
        """A copy on the host."""
        return np.array(self._value.numpy())

    def store(self, array: Array) -> None:
        """Copy all of it to the device."""
        self._value.update_inplace(np.ascontiguousarray(array))
