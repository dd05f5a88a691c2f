"""A loader of libraries of macOS in a process of Linux on aarch64, for their kernels alone.

It does what macOS's loader does with a file that `tests.arm.macho` reads: maps its segments, moves
its pointers and binds its symbols, here to the C library of Linux. What kernels get from TVM's
runtime is replaced: their loops run in one thread, and the text of an error is kept.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.arm.macho import MachO

_PREFIX = "__tvm_ffi_"
#: Type of an argument that points to a DLTensor (tvm_ffi's c_api.h), and DLPack's codes of types.
_TENSOR_POINTER = 7
_CODES = {"i": 0, "u": 1, "f": 2}

_Body = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_Launch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_Pattern = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Parts = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int32)
_Allocate = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int
)
_Free = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
_Function = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p
)


class _Group(ctypes.Structure):
    """What a loop's body is told of its launch."""

    _fields_ = (("sync", ctypes.c_void_p), ("tasks", ctypes.c_int))


class _Tensor(ctypes.Structure):
    """A DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int * 2),
        ("axes", ctypes.c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    )


class MachLibrary:
    """A library in memory. Its kernels take arrays, which they change."""

    def __init__(self, path: Path) -> None:
        file = MachO(path)
        self._exports, self._errors = file.exports, [""]
        size = max(segment.address + segment.room for segment in file.segments)
        everything = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        self._memory = mmap.mmap(-1, size, prot=everything)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for segment in file.segments:
            part = file.data[segment.offset : segment.offset + segment.size]
            self._memory[segment.address : segment.address + len(part)] = part
        for place in file.pointers:
            self._write(place, self._base + struct.unpack_from("<Q", self._memory, place)[0])
        self._given = self._shims()
        for bound in file.bindings:
            self._write(bound.address, self._address(bound.symbol.removeprefix("_")))
        self._set_pointers()

    def _write(self, place: int, value: int) -> None:
        struct.pack_into("<Q", self._memory, place, value)

    def _address(self, symbol: str) -> int:
        """Where a symbol lies: in the library, among the shims, or in Linux's C library."""
        if symbol in self._exports:
            return self._base + self._exports[symbol]
        if symbol in self._given:
            return ctypes.cast(self._given[symbol], ctypes.c_void_p).value or 0
        for library in (None, ctypes.util.find_library("m") or "libm.so.6"):
            found = getattr(ctypes.CDLL(library), symbol, None)
            if found is not None:
                return ctypes.cast(found, ctypes.c_void_p).value or 0
        return 0  # a call of it ends the process

    def _shims(self) -> dict[str, Any]:
        def memset_pattern16(place: int, pattern: int, size: int) -> None:
            data = ctypes.string_at(pattern, 16)
            ctypes.memmove(place, (data * (size // 16 + 1))[:size], size)

        def set_raised(kind: bytes, parts: Any, count: int) -> None:
            self._errors[0] = b"".join([kind, b": ", *parts[:count]]).decode()

        return {
            "memset_pattern16": _Pattern(memset_pattern16),
            "TVMFFIErrorSetRaisedFromCStrParts": _Parts(set_raised),
        }

    def _set_pointers(self) -> None:
        """Those that TVM's runtime sets in a library that it loads."""
        held: dict[int, Any] = {}

        def launch(body: int, data: int, tasks: int) -> int:
            group = _Group(None, tasks or 3)
            calls = _Body(body)
            codes = [calls(i, ctypes.addressof(group), data) for i in range(group.tasks)]
            return -1 if any(codes) else 0

        def allocate(_: int, __: int, size: int, ___: int, ____: int) -> int:
            memory = ctypes.create_string_buffer(size + 64)
            address = -(-ctypes.addressof(memory) // 64) * 64
            held[address] = memory
            return address

        def free(_: int, __: int, address: int) -> int:
            del held[address]
            return 0

        self._pointers = {
            "ParallelLaunch": _Launch(launch),
            "AllocWorkspace": _Allocate(allocate),
            "FreeWorkspace": _Free(free),
        }
        for name, function in self._pointers.items():
            place = self._exports.get(f"__TVMBackend{name}")
            if place is not None:
                self._write(place, ctypes.cast(function, ctypes.c_void_p).value or 0)

    def call(self, name: str, arrays: Sequence[Any]) -> None:
        """Run a kernel on NumPy arrays.

        Raises:
            RuntimeError: It refuses them; says why.
        """
        kept = [_described(array) for array in arrays]
        words = (ctypes.c_uint64 * (2 * len(kept)))()
        for index, (tensor, _) in enumerate(kept):
            words[2 * index], words[2 * index + 1] = _TENSOR_POINTER, ctypes.addressof(tensor)
        result = (ctypes.c_uint64 * 2)()
        function = _Function(self._base + self._exports[f"{_PREFIX}{name}"])
        arguments = ctypes.addressof(words), len(kept), ctypes.addressof(result)
        if function(None, *arguments):
            raise RuntimeError(self._errors[0])


def _described(array: Any) -> tuple[_Tensor, Any]:
    """A DLTensor of an array without gaps, and what it points to."""
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    tensor = _Tensor(array.ctypes.data, (1, 0), array.ndim)
    tensor.code, tensor.bits = _CODES[array.dtype.kind], 8 * array.dtype.itemsize
    tensor.lanes, tensor.shape = 1, ctypes.addressof(shape)
    return tensor, shape
