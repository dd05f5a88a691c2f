"""The calls that reach the CUDA driver, by a stand-in that writes them down."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from optc.errors import UnavailableError
from optc.system.hardware.cuda_device import CudaDevice


class Driver:
    """Answers every function with success, unless told otherwise, and hands out addresses."""

    def __init__(self, failing: dict[str, int] | None = None) -> None:
        self.calls: list[tuple[int, str, tuple[Any, ...]]] = []
        self._failing = failing or {}

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append((threading.get_ident(), name, arguments))
            if name in ("cuMemAlloc_v2", "cuStreamCreate", "cuStreamEndCapture"):
                arguments[-1 if "End" in name else 0]._obj.value = 0xABC000
            return self._failing.get(name, 0)

        return call

    def names(self, thread: int | None = None) -> list[str]:
        return [name for owner, name, _ in self.calls if thread in (None, owner)]


def test_every_thread_enters_the_context_once() -> None:
    driver = Driver()
    device = CudaDevice(driver)
    worker = threading.Thread(target=lambda: (device.wait(), device.wait()))
    worker.start()
    ident = worker.ident
    worker.join()
    device.wait()
    assert driver.names(ident) == ["cuCtxSetCurrent", "cuStreamSynchronize", "cuStreamSynchronize"]
    assert driver.names(threading.get_ident()) == [
        *("cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"),
        *("cuCtxSetCurrent", "cuStreamCreate", "cuStreamSynchronize"),
    ]


def test_memory_is_asked_for_and_copied_on_the_stream() -> None:
    driver = Driver()
    device = CudaDevice(driver)
    address = device.allocate(64)
    assert address == 0xABC000
    array = np.arange(16, dtype=np.float32)
    device.clear(address, 64)
    device.upload(address, array)
    device.download(array, address)
    device.copy_rows(address + 8, address, width=4, rows=3, pitch=16)
    tail = [(name, arguments) for _, name, arguments in driver.calls[-4:]]
    assert [name for name, _ in tail] == [
        *("cuMemsetD8Async", "cuMemcpyHtoDAsync_v2"),
        *("cuMemcpyDtoHAsync_v2", "cuMemcpy2DAsync_v2"),
    ]
    assert all(arguments[-1].value == device.stream for _, arguments in tail)
    assert [tail[1][1][0].value, tail[1][1][2].value] == [address, 64]
    assert tail[1][1][1].value == array.ctypes.data
    copy = tail[3][1][0]._obj
    assert (copy.dstDevice, copy.srcDevice) == (address + 8, address)
    assert (copy.WidthInBytes, copy.Height, copy.srcPitch, copy.dstPitch) == (4, 3, 16, 16)
    device.free(address)
    assert driver.names()[-1] == "cuMemFree_v2"


def test_a_graph_is_captured_between_begin_and_end() -> None:
    driver = Driver()
    device = CudaDevice(driver)
    graph = device.capture(lambda: device.clear(0, 1))
    graph.launch()
    graph.close()
    assert driver.names()[-7:] == [
        *("cuStreamBeginCapture_v2", "cuMemsetD8Async", "cuStreamEndCapture"),
        *("cuGraphInstantiateWithFlags", "cuGraphDestroy", "cuGraphLaunch", "cuGraphExecDestroy"),
    ]


def test_a_capture_that_fails_is_ended_all_the_same() -> None:
    driver = Driver()
    device = CudaDevice(driver)

    def work() -> None:
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        device.capture(work)
    assert driver.names()[-1] == "cuStreamEndCapture"


def test_errors_name_the_function_and_what_helps() -> None:
    with pytest.raises(UnavailableError, match="CUDA: cuInit: error 100"):
        CudaDevice(Driver({"cuInit": 100}))
    device = CudaDevice(Driver({"cuMemAlloc_v2": 2}))
    with pytest.raises(UnavailableError, match=r"cuMemAlloc_v2: error 2 .give it less kv_memory"):
        device.allocate(1 << 50)
