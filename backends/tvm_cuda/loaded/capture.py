"""CUDA graphs through CUDA's runtime library, by ctypes: capture launches once, launch them all."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

#: A stream that the default stream does not wait for, as streams that capture must be.
_NON_BLOCKING = 1
#: Calls of this thread that a capture cannot contain fail; other threads go on.
_THREAD_LOCAL = 1


class NotCapturedError(Exception):
    """CUDA refuses to capture or to launch; the message says what it said."""


class Graph:
    """Captured launches.

    Args:
        cudart: CUDA's runtime library.
        handle: Of the executable graph.
    """

    def __init__(self, cudart: Any, handle: ctypes.c_void_p) -> None:
        self._cudart = cudart
        self._handle = handle

    def launch(self) -> None:
        """Start all of it on the default stream.

        Raises:
            RuntimeError: CUDA reports an error.
        """
        status = self._cudart.cudaGraphLaunch(self._handle, None)
        if status:
            raise RuntimeError(f"a captured step failed: {_said(self._cudart, status)}")

    def __del__(self) -> None:
        self._cudart.cudaGraphExecDestroy(self._handle)


class Capture:
    """Captures what a function launches.

    Args:
        ffi: The ``tvm_ffi`` package.
        cudart: CUDA's runtime library.
        device: ``tvm_ffi`` device whose launches are captured.

    Raises:
        NotCapturedError: There is no stream for it.
    """

    def __init__(self, ffi: ModuleType, cudart: Any, device: Any) -> None:
        self._ffi = ffi
        self._cudart = cudart
        self._device = device
        self._stream = ctypes.c_void_p()
        self._check(
            cudart.cudaStreamCreateWithFlags(ctypes.byref(self._stream), _NON_BLOCKING),
            "cudaStreamCreate",
        )

    def graph_of(self, run: Callable[[], None]) -> Graph:
        """The graph of what ``run`` launches; nothing of it is executed.

        Raises:
            NotCapturedError: It does what a graph cannot contain, or CUDA makes none of it.
        """
        cudart, graph = self._cudart, ctypes.c_void_p()
        self._check(cudart.cudaStreamBeginCapture(self._stream, _THREAD_LOCAL), "begin")
        try:
            with self._ffi.use_raw_stream(self._device, self._stream.value):
                run()
        except RuntimeError as error:  # TVM's for a launch that CUDA refuses
            raise NotCapturedError(str(error).strip().splitlines()[-1]) from error
        finally:
            status = cudart.cudaStreamEndCapture(self._stream, ctypes.byref(graph))
            cudart.cudaGetLastError()  # one of an ended capture would be reported by others
        self._check(status, "cudaStreamEndCapture")
        handle = ctypes.c_void_p()
        status = cudart.cudaGraphInstantiate(ctypes.byref(handle), graph, ctypes.c_ulonglong(0))
        cudart.cudaGraphDestroy(graph)
        self._check(status, "cudaGraphInstantiate")
        return Graph(cudart, handle)

    def __del__(self) -> None:
        if self._stream:
            self._cudart.cudaStreamDestroy(self._stream)

    def _check(self, status: int, what: str) -> None:
        if status:
            raise NotCapturedError(f"{what}: {_said(self._cudart, status)}")


def _said(cudart: Any, status: int) -> str:
    cudart.cudaGetErrorString.restype = ctypes.c_char_p
    said: bytes = cudart.cudaGetErrorString(status)
    return said.decode()
