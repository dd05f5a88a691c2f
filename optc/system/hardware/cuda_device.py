"""Memory, copies and streams of a CUDA device, through the driver's own library.

Nothing but the driver is needed: its streams and pointers are those that TensorRT takes.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy.typing as npt

from optc.errors import UnavailableError

Array = npt.NDArray[Any]
_DRIVER = "libcuda.so.1"
_OUT_OF_MEMORY = 2
_NON_BLOCKING, _THREAD_LOCAL_CAPTURE, _DEVICE = 1, 1, 2


class Graph(Protocol):
    """Work that was captured."""

    def launch(self) -> None:
        """Run it on the device's stream."""
        ...

    def close(self) -> None:
        """Release it."""
        ...


class Device(Protocol):
    """The operations of a GPU that running an engine needs. All work is ordered on one stream."""

    stream: int

    def allocate(self, size: int) -> int:
        """Address of ``size`` new bytes."""
        ...

    def free(self, address: int) -> None:
        """Give memory back."""
        ...

    def clear(self, address: int, size: int) -> None:
        """Set bytes to zero."""
        ...

    def upload(self, address: int, array: Array) -> None:
        """Copy a contiguous array to the device."""
        ...

    def download(self, array: Array, address: int) -> None:
        """Copy to a contiguous array; it holds the bytes after `wait`."""
        ...

    def copy_rows(self, target: int, source: int, width: int, rows: int, pitch: int) -> None:
        """Copy ``rows`` runs of ``width`` bytes that lie ``pitch`` bytes apart."""
        ...

    def wait(self) -> None:
        """Until all work is done."""
        ...

    def capture(self, work: Callable[[], None]) -> Graph:
        """Record what ``work`` puts on the stream, without running it."""
        ...

    def close(self) -> None:
        """Release the stream and the context."""
        ...


class _Copy2D(ctypes.Structure):
    """``CUDA_MEMCPY2D``."""

    _fields_ = (
        ("srcXInBytes", ctypes.c_size_t),
        ("srcY", ctypes.c_size_t),
        ("srcMemoryType", ctypes.c_uint),
        ("srcHost", ctypes.c_void_p),
        ("srcDevice", ctypes.c_uint64),
        ("srcArray", ctypes.c_void_p),
        ("srcPitch", ctypes.c_size_t),
        ("dstXInBytes", ctypes.c_size_t),
        ("dstY", ctypes.c_size_t),
        ("dstMemoryType", ctypes.c_uint),
        ("dstHost", ctypes.c_void_p),
        ("dstDevice", ctypes.c_uint64),
        ("dstArray", ctypes.c_void_p),
        ("dstPitch", ctypes.c_size_t),
        ("WidthInBytes", ctypes.c_size_t),
        ("Height", ctypes.c_size_t),
    )


class CudaDevice:
    """The first CUDA device, by its primary context.

    Args:
        driver: The driver's library; None opens that of the system.

    Raises:
        UnavailableError: There is no driver, or it has no device; also from every method, with the
            function of the driver that failed.
    """

    def __init__(self, driver: Any = None) -> None:
        self._driver = _open_driver() if driver is None else driver
        self._threads = threading.local()
        self._check("cuInit", 0)
        self._device = ctypes.c_int(0)
        self._check("cuDeviceGet", ctypes.byref(self._device), 0)
        self._context = ctypes.c_void_p()
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        self._stream = stream
        self.stream = stream.value or 0

    def _call(self, name: str, *arguments: Any) -> None:
        """Call the driver with the context, which belongs to a thread: engines are opened in one
        thread and run in another."""
        if not getattr(self._threads, "entered", False):
            self._check("cuCtxSetCurrent", self._context)
            self._threads.entered = True
        self._check(name, *arguments)

    def _check(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status:
            hint = "give it less kv_memory" if status == _OUT_OF_MEMORY else ""
            raise UnavailableError(f"{name}: error {status}", where="CUDA", hint=hint)

    def allocate(self, size: int) -> int:
        """Address of ``size`` new bytes."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        """Give memory back."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def clear(self, address: int, size: int) -> None:
        """Set bytes to zero."""
        where, count = ctypes.c_uint64(address), ctypes.c_size_t(size)
        self._call("cuMemsetD8Async", where, ctypes.c_ubyte(0), count, self._stream)

    def upload(self, address: int, array: Array) -> None:
        """Copy a contiguous array to the device."""
        source = ctypes.c_void_p(array.ctypes.data)
        size = ctypes.c_size_t(array.nbytes)
        self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), source, size, self._stream)

    def download(self, array: Array, address: int) -> None:
        """Copy to a contiguous array; it holds the bytes after `wait`."""
        target = ctypes.c_void_p(array.ctypes.data)
        size = ctypes.c_size_t(array.nbytes)
        self._call("cuMemcpyDtoHAsync_v2", target, ctypes.c_uint64(address), size, self._stream)

    def copy_rows(self, target: int, source: int, width: int, rows: int, pitch: int) -> None:
        """Copy ``rows`` runs of ``width`` bytes that lie ``pitch`` bytes apart."""
        copy = _Copy2D(
            srcMemoryType=_DEVICE,
            srcDevice=source,
            srcPitch=pitch,
            dstMemoryType=_DEVICE,
            dstDevice=target,
            dstPitch=pitch,
            WidthInBytes=width,
            Height=rows,
        )
        self._call("cuMemcpy2DAsync_v2", ctypes.byref(copy), self._stream)

    def wait(self) -> None:
        """Until all work is done."""
        self._call("cuStreamSynchronize", self._stream)

    def capture(self, work: Callable[[], None]) -> Graph:
        """Record what ``work`` puts on the stream, without running it."""
        self._call("cuStreamBeginCapture_v2", self._stream, _THREAD_LOCAL_CAPTURE)
        graph = ctypes.c_void_p()
        try:
            work()
        finally:
            self._call("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        executable = ctypes.c_void_p()
        self._call(
            "cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0)
        )
        self._call("cuGraphDestroy", graph)
        return _CudaGraph(self._call, executable, self._stream)

    def close(self) -> None:
        """Release the stream and the context."""
        self._call("cuStreamDestroy_v2", self._stream)
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)


class _CudaGraph:
    """A graph that was instantiated."""

    def __init__(
        self, call: Callable[..., None], executable: ctypes.c_void_p, stream: ctypes.c_void_p
    ) -> None:
        self._call, self._executable, self._stream = call, executable, stream

    def launch(self) -> None:
        """Run it on the device's stream."""
        self._call("cuGraphLaunch", self._executable, self._stream)

    def close(self) -> None:
        """Release it."""
        self._call("cuGraphExecDestroy", self._executable)


def _open_driver() -> Any:
    try:
        return ctypes.CDLL(_DRIVER)
    except OSError as error:
        raise UnavailableError(
            f"no NVIDIA driver is installed ({_DRIVER} was not found)", where="CUDA"
        ) from error
