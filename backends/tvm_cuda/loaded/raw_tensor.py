"""Tensors over given addresses of a device, by DLPack. Kernels refuse views that state an offset,
as the runtime's own views of a part of a tensor do."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

#: Of the capsule that holds a managed tensor; Python keeps no copy of it.
_NAME = b"dltensor"
_INTEGER, _BITS, _LANES = 0, 32, 1
_SIZE = ctypes.sizeof(ctypes.c_int64)


class _Managed(ctypes.Structure):
    """``DLManagedTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class Int32At:
    """An int32 array at an address, for ``from_dlpack``, once. It does not own what lies there.

    Args:
        address: Where it begins.
        shape: Its shape, rows one after the other.
        device: Type and number as DLPack has them.
    """

    def __init__(self, address: int, shape: Sequence[int], device: tuple[int, int]) -> None:
        self._address, self._shape, self._device = address, tuple(shape), device

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device of the tensor: DLPack's type and number."""
        return self._device

    def __dlpack__(self, **_: Any) -> Any:
        """The capsule. What it describes is the C library's, and so is what frees it: tensors may
        outlive the interpreter."""
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        count = len(self._shape)
        memory = libc.malloc(ctypes.c_size_t(ctypes.sizeof(_Managed) + 2 * count * _SIZE))
        dims = memory + ctypes.sizeof(_Managed)
        strides = tuple(accumulate(self._shape[:0:-1], int.__mul__, initial=1))[::-1]
        (ctypes.c_int64 * (2 * count)).from_address(dims)[:] = [*self._shape, *strides]
        managed = _Managed.from_address(memory)
        managed.data, managed.byte_offset, managed.manager = self._address, 0, None
        managed.device_type, managed.device_id = self._device
        managed.ndim, managed.shape, managed.strides = count, dims, dims + count * _SIZE
        managed.code, managed.bits, managed.lanes = _INTEGER, _BITS, _LANES
        managed.deleter = ctypes.cast(libc.free, ctypes.c_void_p).value
        make = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return make(memory, _NAME, None)
