"""A GPU that is not there: memory in an array, and an engine that ONNX Runtime computes.

The engine reads and writes only what lies at the addresses that it is given, so that plans, slots,
aliasing and copies are tested with the numbers of the lowered model.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from optc.system.hardware.cuda_device import Array
from tests.backends.tensorrt.lowered import session

_BASE = 1 << 20
_TYPES: dict[str, type[np.generic]] = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}


class FakeDevice:
    """`optc.system.hardware.cuda_device.Device` over an array of bytes."""

    def __init__(self, size: int = 64 << 20) -> None:
        self.stream = 7
        self.memory = np.zeros(size, np.uint8)
        self.taken: dict[int, int] = {}
        self.captured = self.launched = 0
        self._next = _BASE

    def allocate(self, size: int) -> int:
        address, self._next = self._next, self._next + (size + 255) // 256 * 256
        assert self._next - _BASE <= len(self.memory)
        self.taken[address] = size
        self.bytes_at(address, size)[:] = 0xFF  # not a number until it is written
        return address

    def free(self, address: int) -> None:
        del self.taken[address]

    def bytes_at(self, address: int, size: int) -> Array:
        inside = [
            a for a, held in self.taken.items() if a <= address and address + size <= a + held
        ]
        assert inside, f"{size} bytes at {address} were not allocated"
        return self.memory[address - _BASE : address - _BASE + size]

    def array_at(self, address: int, shape: tuple[int, ...], dtype: type[np.generic]) -> Array:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.bytes_at(address, size).view(dtype).reshape(shape)

    def clear(self, address: int, size: int) -> None:
        self.bytes_at(address, size)[:] = 0

    def upload(self, address: int, array: Array) -> None:
        self.bytes_at(address, array.nbytes)[:] = (
            np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        )

    def download(self, array: Array, address: int) -> None:
        assert array.flags.c_contiguous
        array.reshape(-1).view(np.uint8)[:] = self.bytes_at(address, array.nbytes)

    def copy_rows(self, target: int, source: int, width: int, rows: int, pitch: int) -> None:
        for row in range(rows):
            moved = self.bytes_at(source + row * pitch, width).copy()
            self.bytes_at(target + row * pitch, width)[:] = moved

    def wait(self) -> None:
        pass

    def capture(self, work: Callable[[], None]) -> Any:
        device, self.captured = self, self.captured + 1

        class Graph:
            def launch(self) -> None:
                device.launched += 1
                work()

            def close(self) -> None:
                device.captured -= 1

        return Graph()

    def close(self) -> None:
        pass


class FakeContext:
    """An execution context: checks what TensorRT checks, then runs the lowered model."""

    def __init__(self, opened: ort.InferenceSession, device: FakeDevice, aliases: dict[str, str]):
        self._session, self._device, self._aliases = opened, device, aliases
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.runs: list[tuple[int, ...]] = []

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.shapes[name] = tuple(shape)
        return True

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self.addresses[name] = memory
        return True

    def execute_async_v3(self, stream_handle: int) -> bool:
        assert stream_handle == self._device.stream
        for output, given in self._aliases.items():
            assert self.addresses[output] == self.addresses[given]
        feeds = {}
        for one in self._session.get_inputs():
            shape = self.shapes[one.name]
            found = self._device.array_at(self.addresses[one.name], shape, _TYPES[one.type])
            feeds[one.name] = found.copy()
            if one.name == "write_indices":
                rows, length = self.shapes["tokens"][1], self.shapes["past_k.0"][2]
                assert (found >= 0).all()
                assert (found + rows <= length).all()
        names = [one.name for one in self._session.get_outputs()]
        for name, array in zip(names, self._session.run(names, feeds), strict=True):
            self._device.upload(self.addresses[name], array)
        self.runs.append((*self.shapes["tokens"], self.shapes["logit_index"][1]))
        return True


def fake_contexts(
    model: Path, device: FakeDevice, aliases: dict[str, str], count: int
) -> list[FakeContext]:
    """A context for each profile, of one model."""
    opened = session(model)
    return [FakeContext(opened, device, aliases) for _ in range(count)]
