"""Matmul by sparse int8 weights: exactly the one by dense weights."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.kernels.matmul.matmul_sparse import SparseMatmul, sparse_matmul
from optc.backends.tvm.kernels.matmul.schedule import Schedule
from optc.backends.tvm.weights.packing import pack_columns
from optc.backends.tvm.weights.sparse_packing import SLACK, count_nonzeros, pack_sparse, starts
from optc.errors import UnsupportedError
from tests.backends.tvm.matmul_cases import (
    V4,
    V4_SPARSE,
    Array,
    assembly,
    assert_close,
    isa_that_runs,
    run,
    sparse_case,
)

SPARSE = V4_SPARSE.name
#: Odd and even numbers of blocks, ragged N and K, one and several panels, a last one cut short.
CONFIGS = [
    SparseMatmul(192, 256),
    SparseMatmul(100, 77, bias=True),
    SparseMatmul(200, 1030),
]
#: Values of a vector from none to all 64 of them.
SHARES = (0.0, 0.3, 0.5, 0.7, 0.97, 1.0)
#: Spread in registers, by tiles of 16 columns from nine rows on, in memory from 17 on, all of K at
#: once from 33 on.
ROWS = (1, 2, 5, 8, 9, 16, 17, 23, 32, 37, 70)


def inputs(
    config: SparseMatmul, rows: int, zeros: float = 0.5
) -> tuple[list[Array], list[Array], Array]:
    """The kernel's operands, those of the dense kernel, and the product in float64."""
    case, packed = sparse_case(config, rows, zeros)
    return [*case.inputs()[:3], *packed], case.inputs(), case.expected()


def some(operands: list[Array], rows: slice) -> list[Array]:
    """The operands with some of the rows."""
    return [*(array[rows] for array in operands[:3]), *operands[3:]]


@pytest.mark.parametrize("zeros", SHARES)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_has_the_bits_of_dense_weights(config: SparseMatmul, zeros: float) -> None:
    """On the instruction set that needs least: theirs are the same on every one."""
    isa, other = isa_that_runs(SPARSE), isa_that_runs("x86-64-v3")
    operands, dense, expected = inputs(config, max(ROWS), zeros)
    whole = run(config, isa, operands)
    assert_close(whole + 1, expected + 1, 120)  # all may be zero
    for rows in ROWS:
        part = slice(max(ROWS) - rows, max(ROWS))
        ours = run(config, isa, some(operands, part))
        np.testing.assert_array_equal(ours, run(config.dense, other, some(dense, part)))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(CONFIGS), st.integers(0, 149), st.integers(1, 150))
def test_a_row_has_the_same_bits_whatever_the_other_rows(
    config: SparseMatmul, start: int, count: int
) -> None:
    isa = isa_that_runs(SPARSE)
    operands, _, _ = inputs(config, 150)
    whole = run(config, isa, operands)
    rows = slice(start, min(start + count, 150))
    np.testing.assert_array_equal(run(config, isa, some(operands, rows)), whole[rows])


def test_two_of_four_and_whole_channels_of_zeros() -> None:
    """Every vector has 32 values; then there are channels, blocks and panels without any."""
    config, isa = CONFIGS[2], isa_that_runs(SPARSE)
    case, _ = sparse_case(config, 9, 0.0)
    for pattern in ("two of four", "channels", "block", "panel"):
        weight = (case.stored - np.uint8(128)).view(np.int8).copy()
        if pattern == "two of four":
            weight[:, 1::4] = weight[:, 2::4] = 0
        elif pattern == "channels":
            weight[::3] = 0
        elif pattern == "block":
            weight[64:128] = 0
        else:
            weight[:, 256:512] = 0
        dense = replace(case, stored=weight.view(np.uint8) + np.uint8(128))
        packed = _packed(weight, case.scales)
        for rows in (slice(1), slice(9)):
            ours = run(config, isa, [*dense.inputs(rows)[:3], *packed])
            np.testing.assert_array_equal(ours, run(config.dense, isa, dense.inputs(rows)))


def _packed(weight: Array, scales: Array) -> list[Array]:
    mask, values = pack_sparse(weight)
    padded = np.concatenate([values, np.zeros(SLACK, np.uint8)])
    first = starts(count_nonzeros(weight))
    return [mask, first, padded, pack_columns(scales, np.float32)]


def test_many_rows_split_among_threads_have_the_same_bits_as_one_thread() -> None:
    config, isa = CONFIGS[2], isa_that_runs(SPARSE)
    operands, _, expected = inputs(config, 150)
    set_threads = tvm.get_global_func("runtime.config_threadpool")
    results = []
    for threads in (2, 1):
        set_threads(1, threads)
        results.append(run(config, isa, operands))
    set_threads(1, 2)
    np.testing.assert_array_equal(results[0], results[1])
    assert_close(results[0], expected, 130)


@pytest.mark.parametrize(
    "schedule",
    [Schedule(1, 2), Schedule(3, 7, 5, halves=True)],
    ids=lambda schedule: f"few{schedule.few}",
)
def test_a_schedule_changes_no_bit(schedule: Schedule) -> None:
    config, isa = CONFIGS[1], isa_that_runs(SPARSE)
    operands, _, _ = inputs(config, 150)
    whole = run(config, isa, operands)
    for rows in (1, 8, 9, 150):
        found = run(replace(config, schedule=schedule), isa, some(operands, slice(rows)))
        np.testing.assert_array_equal(found, whole[:rows])


def test_no_rows_is_no_work() -> None:
    operands, _, _ = inputs(CONFIGS[0], 1)
    found = run(CONFIGS[0], isa_that_runs(SPARSE), some(operands, slice(0)))
    assert found.shape == (0, 192)


def test_values_are_spread_in_registers_by_one_instruction_a_vector() -> None:
    """And moved on by a count of bits; no loop spells the count out."""
    text = assembly(CONFIGS[2], isa_of(V4_SPARSE))
    blocks = re.findall(r"\n(\.LBB\S+):(.*?)(?=\n\.LBB|$)", text, re.DOTALL)
    loops = [re.split(rf"\tj\w+\t{re.escape(label)}\b", body) for label, body in blocks]
    bodies = [parts[0] for parts in loops if len(parts) > 1 and "vpexpandb" in parts[0]]
    spread = [body for body in bodies if "vpdpbusd" in body]
    assert len(spread) >= 8
    assert len(bodies) > len(spread)  # and some loops write to memory
    for body in bodies:
        assert body.count("vpexpandb") == body.count("popcntq") == body.count("prefetcht1")


def test_is_refused_without_the_instruction() -> None:
    with pytest.raises(UnsupportedError, match="no sparse matmul on avx512_vnni without") as caught:
        sparse_matmul(CONFIGS[0], isa_of(V4))
    assert caught.value.hint == "store the weight dense"
