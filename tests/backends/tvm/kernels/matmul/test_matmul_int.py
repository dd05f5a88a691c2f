"""Integer matmul kernels: exactness, bit equality over rows, threads and instruction sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm

from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.errors import UnsupportedError
from tests.backends.tvm.matmul_cases import assert_close, int_case, isa_that_runs, run

#: Whole and ragged N and K, every weight format of CUDA's kernels too, a last group that is short.
COMMON = [
    IntMatmul(192, 256),
    IntMatmul(100, 77, bias=True),
    IntMatmul(64, 96, 8, 64, asymmetric=True),
    IntMatmul(200, 256, 4, 32),
    IntMatmul(128, 300, 4, 128, asymmetric=True, bias=True),
    IntMatmul(64, 256, 4, asymmetric=True),
]
CONFIGS = [
    *COMMON,
    IntMatmul(200, 300, 4, 32, minimums=True, bias=True),
    IntMatmul(64, 128, 8, 64, minimums=True),
]
ISAS = ["x86-64-v3", "x86-64-v4-vnni"]


@pytest.mark.parametrize("target", ISAS)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_matches_exact_integers_scaled_in_float64(config: IntMatmul, target: str) -> None:
    case = int_case(config, rows=37)
    assert_close(run(config, isa_that_runs(target), case.inputs()), case.expected(), 125)


@pytest.mark.parametrize("target", ISAS)
@pytest.mark.parametrize("config", CONFIGS[1:], ids=lambda config: config.name)
def test_a_row_has_the_same_bits_whatever_the_other_rows(config: IntMatmul, target: str) -> None:
    isa = isa_that_runs(target)
    case = int_case(config, rows=37)
    whole = run(config, isa, case.inputs())
    for start, stop in [(0, 1), (36, 37), (3, 5), (7, 10), (0, 4), (1, 6), (2, 8), (4, 17)]:
        part = run(config, isa, case.inputs(slice(start, stop)))
        np.testing.assert_array_equal(part, whole[start:stop])


def test_many_rows_split_among_threads_have_the_same_bits_as_one_thread() -> None:
    config = IntMatmul(640, 160, 4, 32, asymmetric=True)
    isa = isa_that_runs("x86-64-v3")
    case = int_case(config, rows=150)
    set_threads = tvm.get_global_func("runtime.config_threadpool")
    results = []
    for threads in (2, 1):
        set_threads(1, threads)
        results.append(run(config, isa, case.inputs()))
    set_threads(1, 2)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0][75:76], run(config, isa, case.inputs(slice(75, 76))))
    assert_close(results[0], case.expected(), 125)


#: K in panels: a last one that is cut short, ragged N, tasks of half blocks.
PANELS = [
    IntMatmul(100, 6500, bias=True),
    IntMatmul(192, 8192, 8, 0, asymmetric=True),
    IntMatmul(200, 1100, bias=True),  # only where there are up to 32 rows
]


@pytest.mark.parametrize("target", ISAS)
@pytest.mark.parametrize("config", PANELS, ids=lambda config: config.name)
def test_panels_of_k_give_the_bits_of_one_row_alone(config: IntMatmul, target: str) -> None:
    assert config.short_panels
    isa = isa_that_runs(target)
    case = int_case(config, rows=300)  # more than a task keeps sums of
    whole = run(config, isa, case.inputs())
    assert_close(whole, case.expected(), 125)
    for start, stop in [
        (0, 1),
        (255, 256),
        (299, 300),
        (1, 7),
        (2, 9),
        (3, 11),
        (40, 56),
        (2, 34),
        (2, 35),
    ]:
        part = run(config, isa, case.inputs(slice(start, stop)))
        np.testing.assert_array_equal(part, whole[start:stop])


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_instruction_sets_agree_in_every_bit(config: IntMatmul) -> None:
    case = int_case(config, rows=37)
    narrow, wide = (run(config, isa_that_runs(target), case.inputs()) for target in ISAS)
    np.testing.assert_array_equal(narrow, wide)


@pytest.mark.parametrize("target", ISAS)
@pytest.mark.parametrize(
    "config",
    [IntMatmul(64, 256, 8, 0, asymmetric=True), IntMatmul(64, 256, 4, asymmetric=True)],
    ids=lambda config: config.name,
)
def test_extreme_values_do_not_saturate(config: IntMatmul, target: str) -> None:
    top = (1 << config.bits) - 1
    case = int_case(config, rows=6)
    stored = np.tile(np.array([0, 0, top, top], np.uint8), (64, 64))
    stored[::2] = top
    stored[1] = 0
    x = np.full((6, 256), 127, np.int8)
    x[1] = -127
    x[2, ::2] = -127
    x[3, ::4] = -127
    case = replace(
        case,
        stored=stored,
        x=x,
        zeros=np.tile([[0], [top], [top // 2], [1]], (16, 1)),
        scales=np.ones((64, 1), np.float32),
        x_scale=np.ones(6, np.float32),
    )
    # All sums are below 2**24, so float32 holds them exactly.
    np.testing.assert_array_equal(
        run(config, isa_that_runs(target), case.inputs()), case.expected()
    )


def test_no_rows_is_no_work() -> None:
    config = CONFIGS[0]
    case = int_case(config, rows=1)
    assert run(config, isa_that_runs("x86-64-v3"), case.inputs(slice(0))).shape == (0, 192)


@pytest.mark.parametrize(("bits", "group"), [(2, 0), (4, 16), (8, -32)])
def test_refuses_formats_without_a_kernel(bits: int, group: int) -> None:
    with pytest.raises(UnsupportedError, match=f"{bits} bits in groups of {group}") as caught:
        IntMatmul(64, 64, bits, group)
    assert "multiple of 32" in caught.value.hint
