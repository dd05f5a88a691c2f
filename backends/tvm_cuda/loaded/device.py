"""Tensors in a device's memory, by functions of TVM's runtime: NumPy on one side, tvm_ffi on the
other. Needs no compiler."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm_cuda.loaded.raw_tensor import Int32At
from optc.errors import UnavailableError

Array = npt.NDArray[Any]
#: DLPack's type of host memory that CUDA has pinned; the package has no name for it.
_PINNED = 3


class Device:
    """A CUDA device. Uploads and downloads wait until they are done, and for all work that was
    started before them."""

    def __init__(self, ffi: ModuleType, index: int = 0) -> None:
        self._ffi = ffi
        self._device = ffi.device("cuda", index)
        self._allocate = ffi.get_global_func("runtime.TVMTensorAllocWithScope")
        self._upload = ffi.get_global_func("runtime.TVMTensorCopyFromBytes")
        self._download = ffi.get_global_func("runtime.TVMTensorCopyToBytes")
        self._view = ffi.get_global_func("runtime.TVMTensorCreateView")
        self._copy = ffi.get_global_func("runtime.TVMTensorCopyFromTo")

    @property
    def handle(self) -> Any:
        """The device as ``tvm_ffi`` names it."""
        return self._device

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        """A new tensor whose contents are undefined.

        Raises:
            UnavailableError: The device has no memory left for it.
        """
        dims = self._ffi.Shape([int(dim) for dim in shape])
        try:
            return self._allocate(dims, self._ffi.dtype(dtype), self._device, None)
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            size = math.prod(shape) * np.dtype(dtype).itemsize
            raise UnavailableError(
                f"the GPU has no room for another {size / (1 << 20):.0f} MiB",
                where="tvm engine",
                hint="give it a smaller kv_memory, or end other programs that use the GPU",
            ) from error

    def copy_of(self, array: Array) -> Any:
        """A new tensor that holds ``array``, with the bits of float16 as uint16."""
        array = np.ascontiguousarray(array)
        array = array.view(np.uint16) if array.dtype == np.float16 else array
        tensor = self.empty(array.shape, array.dtype.name)
        self.upload(array, tensor)
        return tensor

    def pinned(self, count: int) -> tuple[Any, npt.NDArray[np.int32]]:
        """A tensor int32 [count] in host memory that the device copies from by itself, and the same
        memory as an array, which is valid as long as the tensor is."""
        shape = self._ffi.Shape([count])
        host = self._ffi.device(_PINNED, 0)
        tensor = self._allocate(shape, self._ffi.dtype("int32"), host, None)
        memory = (ctypes.c_int32 * count).from_address(tensor.data_ptr())
        return tensor, np.ctypeslib.as_array(memory)

    def upload(self, array: Array, tensor: Any) -> None:
        """Copy a C-contiguous array into a tensor of as many bytes."""
        self._upload(tensor, array.ctypes.data_as(ctypes.c_void_p), array.nbytes)

    def download(self, tensor: Any, array: Array) -> None:
        """Copy a tensor into a C-contiguous array of as many bytes."""
        self._download(tensor, array.ctypes.data_as(ctypes.c_void_p), array.nbytes)

    def copy(self, source: Any, target: Any) -> None:
        """Start to copy a tensor into another of its shape and type; whatever is started later
        finds it there. What lies in host memory may change once something was downloaded."""
        self._copy(source, target)

    def view(self, tensor: Any, shape: Sequence[int], dtype: Any, start: int = 0) -> Any:
        """A view of a tensor's memory from byte ``start`` on."""
        dims = self._ffi.Shape([int(dim) for dim in shape])
        return self._view(tensor, dims, self._ffi.dtype(str(dtype)), start)

    def part(self, tensor: Any, shape: Sequence[int], start: int) -> Any:
        """int32 in a tensor's memory from byte ``start`` on, as kernels take it; it may be used as
        long as the tensor is kept."""
        where = int(self._device.dlpack_device_type()), int(self._device.index)
        return self._ffi.from_dlpack(Int32At(tensor.data_ptr() + start, shape, where))

    def bytes_of(self, tensor: Any, start: int, count: int) -> Any:
        """A view of ``count`` bytes of a tensor's memory from byte ``start`` on."""
        return self.view(tensor, [count], "uint8", start)
