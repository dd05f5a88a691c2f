"""Matmul by weights with integer group scales: exactly the one by int8 weights per channel."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.kernels.matmul.matmul_two_level import TwoLevelMatmul
from optc.backends.tvm.kernels.matmul.places import BLOCK
from optc.backends.tvm.kernels.matmul.schedule import Schedule
from optc.backends.tvm.kernels.matmul.short_sums import FOURS
from optc.backends.tvm.weights.packing import pack_columns, pack_groups, pack_int
from optc.errors import UnsupportedError
from optc.system.hardware.target import Target
from tests.backends.tvm.matmul_cases import (
    GREATEST_SCALE,
    V3,
    V4,
    Array,
    assembly,
    assert_close,
    isa_that_runs,
    run,
    two_level_case,
)

#: Odd and even numbers of blocks, ragged N and K, a last group that is cut short, odd groups, all
#: numbers of bits, one panel of K and several. A compile is nearly all of a case's time, longest
#: where N is ragged: with and without a bias and in groups of 32 and of 64 that is enough, because
#: what stores a tile knows neither bits nor panels.
CONFIGS = [
    TwoLevelMatmul(192, 512),
    TwoLevelMatmul(100, 77, bias=True),
    TwoLevelMatmul(64, 77, 64, True, 6),
    TwoLevelMatmul(128, 1100, 64, True, bits=3),
    TwoLevelMatmul(100, 700, 64, bits=2),
    TwoLevelMatmul(192, 300, 128, bits=5),
]
#: One of each number of bits.
OF_BITS = [CONFIGS[at] for at in (4, 3, 0, 5, 2)]
#: And in groups of 32, whose loops have instructions that can be counted.
COUNTED = [TwoLevelMatmul(192, 512, bits=bits) for bits in (2, 3, 4, 5, 6)]
ISAS = ["x86-64-v3", "x86-64-v4-vnni"]
#: With VNNI unpacked in registers, and in memory from 17 rows on; one and several tiles of each.
ROWS = (1, 2, 5, 8, 9, 16, 23, 37)


def inputs(config: TwoLevelMatmul, rows: int) -> tuple[list[Array], Array]:
    """The kernel's operands, and the product in float64."""
    case, packed = two_level_case(config, rows)
    return [*case.inputs()[:3], *packed], case.expected()


def some(operands: list[Array], rows: slice) -> list[Array]:
    """The operands with some of the rows."""
    return [*(array[rows] for array in operands[:3]), *operands[3:]]


@pytest.mark.parametrize("target", ISAS)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_matches_exact_integers_scaled_in_float64(config: TwoLevelMatmul, target: str) -> None:
    for rows in ROWS:
        operands, expected = inputs(config, rows)
        assert_close(run(config, isa_that_runs(target), operands), expected, 130)


@pytest.mark.parametrize("target", ISAS)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_has_the_bits_of_int8_weights_per_channel(config: TwoLevelMatmul, target: str) -> None:
    """Of theirs on one instruction set: they have the same ones on the other."""
    isa, other = isa_that_runs(target), isa_that_runs(ISAS[0])
    case, packed = two_level_case(config, 37)
    for rows in (slice(4, 7), slice(37)):
        ours = run(config, isa, [*case.inputs(rows)[:3], *packed])
        np.testing.assert_array_equal(ours, run(config.unpacked, other, case.inputs(rows)))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(CONFIGS),
    st.sampled_from(ISAS),
    st.integers(0, 149),
    st.integers(1, 150),
)
def test_a_row_has_the_same_bits_whatever_the_other_rows(
    config: TwoLevelMatmul, target: str, start: int, count: int
) -> None:
    isa = isa_that_runs("x86-64-v4-vnni")
    operands, _ = inputs(config, 150)
    whole = run(config, isa, operands)
    rows = slice(start, min(start + count, 150))
    part = run(config, isa_that_runs(target), some(operands, rows))
    np.testing.assert_array_equal(part, whole[rows])


#: Interleaved activations up to 16 rows, K in panels up to 32: ragged N and K, a last panel and
#: group that are cut short, tasks of half and of whole blocks.
PANELS = [TwoLevelMatmul(128, 700, 128), CONFIGS[0], *CONFIGS[3:5]]


@pytest.mark.parametrize("target", ISAS)
@pytest.mark.parametrize("config", PANELS, ids=lambda config: config.name)
def test_panels_of_k_give_the_bits_of_one_row_and_of_all_of_k(
    config: TwoLevelMatmul, target: str
) -> None:
    isa = isa_that_runs(target)
    operands, expected = inputs(config, 80)
    whole = run(config, isa, operands)
    assert_close(whole, expected, 130)
    np.testing.assert_array_equal(run(config, isa, some(operands, slice(7, 8))), whole[7:8])
    for count in range(8, 35):
        part = slice(count, 2 * count)
        np.testing.assert_array_equal(run(config, isa, some(operands, part)), whole[part])


@pytest.mark.parametrize(
    ("k", "group", "channels"),
    [(576, 32, 288), (2048, 32, 256), (2048, 96, 288), (2048, 512, 512), (8192, 128, 256)],
)
def test_panels_are_about_equally_long_and_of_whole_groups(
    k: int, group: int, channels: int
) -> None:
    panels = TwoLevelMatmul(64, k, group).panels
    assert panels is not None
    assert panels.channels == channels


@pytest.mark.parametrize(("k", "group"), [(256, 32), (300, 64), (96, 128), (2048, 2048)])
def test_short_k_and_wide_groups_are_one_panel(k: int, group: int) -> None:
    assert TwoLevelMatmul(64, k, group).panels is None


def test_many_rows_split_among_threads_have_the_same_bits_as_one_thread() -> None:
    config = TwoLevelMatmul(640, 160)
    isa = isa_that_runs("x86-64-v3")
    operands, expected = inputs(config, 150)
    set_threads = tvm.get_global_func("runtime.config_threadpool")
    results = []
    for threads in (2, 1):
        set_threads(1, threads)
        results.append(run(config, isa, operands))
    set_threads(1, 2)
    np.testing.assert_array_equal(results[0], results[1])
    assert_close(results[0], expected, 130)


@pytest.mark.parametrize("target", ISAS)
@pytest.mark.parametrize(
    "schedule",
    [Schedule(1, 2), Schedule(3, 7, 5, halves=True)],
    ids=lambda schedule: f"few{schedule.few}",
)
def test_a_schedule_changes_no_bit(schedule: Schedule, target: str) -> None:
    """Over panels of K; the kernels that share the tasks have a test with ragged N."""
    config, isa = CONFIGS[0], isa_that_runs(target)
    for rows in (1, 8, 9, 150):
        operands, _ = inputs(config, rows)
        np.testing.assert_array_equal(
            run(replace(config, schedule=schedule), isa, operands), run(config, isa, operands)
        )


def test_no_rows_is_no_work() -> None:
    operands, _ = inputs(CONFIGS[0], 1)
    assert run(CONFIGS[0], isa_that_runs("x86-64-v3"), some(operands, slice(0))).shape == (0, 192)


def loops(text: str, dot: str) -> list[str]:
    """Bodies of the innermost loops that multiply."""
    blocks = re.findall(r"\n(\.LBB\S+):(.*?)(?=\n\.LBB|$)", text, re.DOTALL)
    bodies = [re.split(rf"\tj\w+\t{re.escape(label)}\b", body) for label, body in blocks]
    return [parts[0] for parts in bodies if len(parts) > 1 and parts[0].count(dot) >= 8]


@pytest.mark.parametrize(("target", "dot"), [(V4, "vpdpbusd"), (V3, "vpmaddubsw")])
def test_sums_stay_integers_over_all_of_k(target: Target, dot: str) -> None:
    """No float in a loop; some unpack by a multiplication of words, some find bytes in memory."""
    found = loops(assembly(CONFIGS[0], isa_of(target)), dot)
    assert len(found) >= 8
    assert not any("vcvtdq2ps" in body or "vfmadd" in body for body in found)
    assert not any("zmm" in body for body in found) or target == V4
    unpacking = sum("vpmullw" in body for body in found)
    assert 0 < unpacking < len(found) if target == V4 else unpacking == 0


@pytest.mark.parametrize("config", COUNTED, ids=lambda config: config.name)
def test_without_vnni_products_are_summed_as_words(config: TwoLevelMatmul) -> None:
    """No weight is turned into int8, and few sums are widened: 4 bits' of 32 channels at once."""
    bits, found = config.bits, loops(assembly(config, isa_of(V3)), "vpmaddubsw")
    assert len(found) >= 8
    for body in found:
        counts = Counter(re.findall(r"^\t(vp\w+)", body, re.MULTILINE))
        assert not counts["vpsignb"]
        products = counts["vpmaddubsw"]
        widened = products // FOURS[bits]
        # an addition each moves offsets, and one doubles single high bits
        vectors = range(1, (BLOCK // 8) * (2 if bits in (3, 5) else 1) + 1)
        assert counts["vpaddw"] - (products - widened) in vectors
        assert counts["vpmaddwd"] == widened + products // 8  # and the offsets of 32 channels


@pytest.mark.parametrize("target", ISAS)
@pytest.mark.parametrize("activation", [127, -127])
@pytest.mark.parametrize("config", OF_BITS, ids=lambda config: config.name)
def test_the_greatest_products_do_not_overflow(
    config: TwoLevelMatmul, activation: int, target: str
) -> None:
    """Every value is the least or the greatest one, by the greatest scale, and so is int8's."""
    n, k, bits = config.n, config.k, config.bits
    greatest, scale = (1 << bits) - 1, GREATEST_SCALE[bits]
    stored = np.full((n, k), greatest, np.uint8)
    stored[::2] = 0
    shape = (n, config.groups)
    offsets = np.full(shape, 255 - greatest * scale, np.uint8)
    x = np.zeros((3, config.k_padded), np.int8)
    x[:, :k] = activation
    operands = [
        x,
        np.ones(3, np.float32),
        x.reshape(3, -1, 32).sum(2, dtype=np.int32),
        pack_int(stored, bits),
        pack_groups(np.full(shape, scale, np.uint8), offsets),
        pack_columns(np.ones((n, 1), np.float32), np.float32),
        *([np.zeros(n, np.float32)] * config.bias),
    ]
    weight = np.where(stored[:, 0] > 0, 127, 127 - greatest * scale)
    exact = np.tile((k * activation * weight).astype(np.float32), (3, 1))
    np.testing.assert_array_equal(run(config, isa_that_runs(target), operands), exact)


@pytest.mark.parametrize("group", [0, 16, -32])
def test_refuses_groups_without_a_kernel(group: int) -> None:
    with pytest.raises(UnsupportedError, match=f"integer scales of groups of {group}") as caught:
        TwoLevelMatmul(64, 64, group)
    assert "multiple of 32" in caught.value.hint


@pytest.mark.parametrize("bits", [1, 7, 8])
def test_refuses_bits_without_a_kernel(bits: int) -> None:
    with pytest.raises(UnsupportedError, match=f"no matmul by {bits} bits with integer scales"):
        TwoLevelMatmul(64, 64, bits=bits)
