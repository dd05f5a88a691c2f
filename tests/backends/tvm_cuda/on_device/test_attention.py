"""Paged attention on this machine's CUDA device: float64, and the same bits in any step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optc.backends.tvm.kernels.attention.paged_attention import PagedAttention
from optc.backends.tvm_cuda.kernels.table import device_function
from optc.errors import UnsupportedError
from tests.backends.tvm import attention_cases
from tests.backends.tvm.attention_cases import (
    MIXED,
    SMALL,
    attend,
    oracle,
    part,
    sequences,
)
from tests.backends.tvm.kernel_cases import DEVICE, sqnr
from tests.backends.tvm.kernels.attention import test_paged_attention as cpu
from tests.backends.tvm_cuda.device_kernels import KV_TYPES

ARITHMETICS = [each for each in attention_cases.ARITHMETICS if each[0] in KV_TYPES]
#: Shapes much like others.
LONG = ("mqa", "seven-shared")
#: Each shape in one arithmetic, all four in turn, from the second on: many heads on tensor cores.
CASES = [
    pytest.param(
        replace(config, kv_dtype=dtype, query_bits=bits),
        id=f"{name}-{dtype}-{bits}",
        marks=[pytest.mark.long] if name in LONG else [],
    )
    for i, (name, config) in enumerate(cpu.CONFIGS.items(), 1)
    for dtype, bits in (ARITHMETICS[i % 4],)
]
#: Sinks, slopes and chunks: on the ordinary units and on tensor cores.
VARIANTS = [
    pytest.param(
        replace(config, kv_dtype=dtype, query_bits=bits),
        id=f"variant-{dtype}-{bits}",
        # other shapes have this arithmetic, and all others have these sinks and chunks
        marks=[pytest.mark.long] if (dtype, bits) == ("int8", 0) else [],
    )
    for config, (dtype, bits) in zip(
        (cpu.CAPPED, cpu.VARIANT, cpu.VARIANT, cpu.CAPPED), ARITHMETICS, strict=True
    )
]


@pytest.mark.parametrize("config", CASES + VARIANTS)
def test_against_float64(config: PagedAttention) -> None:
    cpu.test_against_float64(config, DEVICE)


#: Its sums do not fit registers: tiles of rows keep them in the result, until sinks join them.
WIDE = PagedAttention(4, 2, 32, 192, 0.2, sinks=True)


@pytest.mark.covering
@pytest.mark.parametrize("shape", [SMALL, WIDE, cpu.VARIANT], ids=["small", "wide", "variant"])
@pytest.mark.parametrize(("dtype", "bits"), ARITHMETICS)
def test_a_row_has_the_same_bits_in_any_blocks_batch_and_chunks(
    dtype: str, bits: int, shape: PagedAttention
) -> None:
    """Alone, in blocks for each row and in tiles of rows, of which the first ones are others."""
    config = replace(shape, kv_dtype=dtype, query_bits=bits)
    step = sequences(config, MIXED)
    together = attend(config, DEVICE, step, 16)
    np.testing.assert_array_equal(attend(config, DEVICE, step, 128), together)
    first = 0
    for sequence in step:
        rows = together[first : first + len(sequence.q)]
        first += len(sequence.q)
        last = len(rows) - 1
        alone = attend(config, DEVICE, [part(sequence, last, last + 1)], 32)
        np.testing.assert_array_equal(alone[0], rows[last])
        some = attend(config, DEVICE, [part(sequence, last // 3, last + 1)], 32)
        np.testing.assert_array_equal(some, rows[last // 3 :])


@pytest.mark.parametrize("dtype", KV_TYPES)
def test_long_rows_have_the_same_bits_in_one_block_of_threads_and_in_several(dtype: str) -> None:
    """Few rows are split over the tokens, many are not; the ranges of tokens are the same."""
    config = PagedAttention(6, 2, 32, 32, 0.2, kv_dtype=dtype, sinks=True, slopes=True)
    step = sequences(config, [(37, 2500)])
    many = attend(config, DEVICE, step, 64)
    for row in (0, 20, 36):
        few = attend(config, DEVICE, [part(step[0], row, row + 1)], 64)
        np.testing.assert_array_equal(few[0], many[row])
    least, largest = cpu.BOUNDS[dtype]
    expected = oracle(config, step)
    assert sqnr(many, expected) > least
    assert np.abs(many - expected).max() < largest


def test_attention_without_a_kernel_is_refused() -> None:
    wide = PagedAttention(4, 1, 576, 512, 1.0, kv_dtype="int8", query_bits=8)
    with pytest.raises(UnsupportedError, match="keys of 576 channels over int8 pools have no CUDA"):
        device_function("paged_attention", wide)
    with pytest.raises(UnsupportedError, match="rows that see what lies behind them"):
        device_function("paged_attention", PagedAttention(2, 2, 16, 16, 0.25, causal=False))
