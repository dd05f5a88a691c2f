"""Rotary embedding, KV writes and copies on this machine's CUDA device, by the CPU's tests."""

from __future__ import annotations

import pytest

from tests.backends.tvm.kernel_cases import DEVICE
from tests.backends.tvm.kernels.kv import test_rotary_kv as rotary_kv
from tests.backends.tvm_cuda.device_kernels import KV_TYPES


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("float32", (3, 1, 64, 64, 64, False, False)),
        ("bfloat16", (4, 2, 24, 40, 16, False, True)),
        ("int8", (4, 2, 80, 80, 32, True, True)),
        ("int8", (2, 2, 16, 16, 0, False, False)),
    ],
)
def test_rotary_kv(dtype: str, shape: tuple[int, int, int, int, int, bool, bool]) -> None:
    rotary_kv.test_rotary_kv(DEVICE, dtype, *shape)


@pytest.mark.parametrize(("interleaved", "dtype"), [(True, "bfloat16"), (False, "int8")])
def test_rotary_and_write_alone_equal_the_fused_kernel(interleaved: bool, dtype: str) -> None:
    rotary_kv.test_rotary_and_write_alone_equal_the_fused_kernel(DEVICE, interleaved, dtype)


@pytest.mark.parametrize(("dim", "block"), [(96, 16), (256, 256)])
def test_rotated_heads_equal_the_kernels_apart(dim: int, block: int) -> None:
    rotary_kv.test_rotated_heads_equal_the_kernels_apart(DEVICE, dim, block)


@pytest.mark.parametrize("dtype", KV_TYPES)
def test_copy_kv(dtype: str) -> None:
    rotary_kv.test_copy_kv(DEVICE, dtype)


@pytest.mark.parametrize("dtype", KV_TYPES)
def test_tree_kv(dtype: str) -> None:
    rotary_kv.test_tree_kv_copies_tiles_then_slots(dtype, DEVICE)
