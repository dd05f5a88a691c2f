"""Inputs next to each other: what the host fills is what kernels read after one copy."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import tvm_ffi

from optc.backends.tvm.loaded.input_memory import aligned
from optc.backends.tvm_cuda.loaded.packed_inputs import PackedInputs
from optc.backends.tvm_cuda.loaded.raw_tensor import Int32At


class HostDevice:
    """`optc.backends.tvm_cuda.loaded.device.Device` whose memory is the host's."""

    def __init__(self) -> None:
        self.allocated: list[int] = []

    def empty(self, shape: tuple[int], dtype: str) -> Any:
        assert dtype == "int32"
        self.allocated.append(shape[0])
        return aligned(shape[0])

    def pinned(self, count: int) -> tuple[Any, Any]:
        host = aligned(count)
        return host, host

    def view(self, tensor: Any, shape: tuple[int], dtype: str) -> Any:
        return tensor.view(dtype)[: shape[0]]

    def part(self, tensor: Any, shape: tuple[int, ...], start: int) -> Any:
        assert start % 64 == 0
        return tvm_ffi.from_dlpack(Int32At(tensor.ctypes.data + start, shape, (1, 0)))


def test_one_copy_makes_all_of_them_equal() -> None:
    device, rng = HostDevice(), np.random.default_rng(0)
    packed = PackedInputs(device, {"first": 1, "rows": 40})  # type: ignore[arg-type]
    assert device.allocated == [1024]
    for _ in range(50):
        rows, wide = (int(n) for n in rng.integers(1, 60, 2))
        shapes = {"first": (1,), "rows": (rows,), "table": (2, rows, wide)}
        placed = packed.place(shapes)
        for view in placed.views.values():
            view[...] = rng.integers(-(2**31), 2**31, view.shape)
        source, target = placed.mirror
        target[:] = source
        for name, dims in shapes.items():
            assert tuple(placed.tensors[name].shape) == dims
            np.testing.assert_array_equal(np.from_dlpack(placed.tensors[name]), placed.views[name])
        assert target.ctypes.data == placed.tensors["first"].data_ptr()


def test_memory_moves_only_where_it_has_to_grow() -> None:
    device = HostDevice()
    packed = PackedInputs(device, {"a": 600})  # type: ignore[arg-type]
    assert not packed.place({"a": (600,), "b": (400,)}).moved
    assert packed.place({"a": (600,), "b": (500,)}).moved
    assert not packed.place({"a": (16,), "b": (2000,)}).moved
    assert packed.place({"a": (3000,)}).moved
    assert device.allocated == [1024, 2048, 4096]


@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 0, 4), (3, 1, 2)])
def test_tensors_at_an_address_have_their_shape(shape: tuple[int, ...]) -> None:
    memory = aligned(64)
    memory[:] = np.arange(64)
    tensor = tvm_ffi.from_dlpack(Int32At(memory.ctypes.data + 128, shape, (1, 0)))
    want = memory[32 : 32 + int(np.prod(shape))].reshape(shape)
    np.testing.assert_array_equal(np.from_dlpack(tensor), want)
    del tensor
    gc.collect()
    assert memory[32] == 32
