"""The quantizers against plain NumPy, and their bounds as properties."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.errors import InputError
from optc.ir.quantized_rows import QuantizedTile
from optc.ir.weights import LazyWeight
from optc.passes.numerics.affine import dequantize_rows, quantize_rows, quantized_rows, zeros_of
from optc.passes.numerics.scheme import CHUNK_ELEMENTS, Scheme
from tests.support.ir_text import Array, f32

INT8_ROWS = Scheme(8, 0, True)
SCHEMES = [
    INT8_ROWS,
    Scheme(8, 32, True),
    Scheme(8, 64, False),
    Scheme(8, 0, False),
    Scheme(4, 32, True),
    Scheme(4, 32, False),
    Scheme(4, 64, False),
]


def oracle_group(x: Array, scheme: Scheme, share: float) -> tuple[Array, np.float32, int]:
    """One group [g], by the table of the module, value by value."""
    low, high = np.float32(min(x.min(), 0)), np.float32(max(x.max(), 0))
    if scheme.symmetric:
        steps = 127 if scheme.bits == 8 else 7
        scale = max(high, -low) * np.float32(share) / np.float32(steps)
    else:
        scale = (high * np.float32(share) - low * np.float32(share)) / np.float32(
            2**scheme.bits - 1
        )
    if scheme.group_size:
        scale = np.float32(np.float16(max(scale, np.float32(2.0**-24))))
    least, most = scheme.limits
    zero = 0
    if not scheme.symmetric:
        zero = int(np.clip(np.rint(-low * np.float32(share) / scale), least, most))
    q = [int(np.clip(np.rint(np.float32(value / scale)) + zero, least, most)) for value in x]
    return np.array(q), np.float32(scale), zero


def oracle(rows: Array, scheme: Scheme) -> QuantizedTile:
    size = scheme.group_size or rows.shape[1]
    narrowed = (1.0, 0.95, 0.9, 0.875, 0.85, 0.8) if scheme.symmetric else (1.0, 0.95, 0.9, 0.85)
    shares = narrowed if scheme.bits == 4 else (1.0,)
    values, scales, zeros = np.empty(rows.shape, int), [], []
    for n, row in enumerate(rows):
        for start in range(0, len(row), size):
            x = row[start : start + size]
            tries = [oracle_group(x, scheme, share) for share in shares]
            errors = [
                float(np.square((q - zero) * np.float64(scale) - x).sum())
                for q, scale, zero in tries
            ]
            q, scale, zero = tries[int(np.argmin(errors))]
            values[n, start : start + size] = q
            scales.append(scale)
            zeros.append(zero)
    shape = (len(rows), -1) if scheme.group_size else (len(rows),)
    zero_points = None if scheme.symmetric else np.array(zeros, np.uint8).reshape(shape)
    return QuantizedTile(values, np.array(scales, np.float32).reshape(shape), zero_points)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.label)
def test_equals_the_oracle(scheme: Scheme) -> None:
    rows = f32(9, 128) * np.float32(0.02)
    rows[3] = np.abs(rows[3])  # one-sided groups
    rows[4] *= 1000
    got, want = quantize_rows(rows, scheme), oracle(rows, scheme)
    np.testing.assert_array_equal(got.scales, want.scales)
    np.testing.assert_array_equal(got.values, want.values)
    if want.zero_points is None:
        assert got.zero_points is None
    else:
        assert got.zero_points is not None
        np.testing.assert_array_equal(got.zero_points, want.zero_points)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.label)
def test_tiles_do_not_change_the_result(scheme: Scheme) -> None:
    rows = f32(50, 4096)  # more than one chunk
    whole = quantize_rows(rows, scheme)
    for start, stop in [(0, 1), (7, 33), (33, 50)]:
        part = quantize_rows(rows[start:stop], scheme)
        np.testing.assert_array_equal(part.values, whole.values[start:stop])
        np.testing.assert_array_equal(part.scales, whole.scales[start:stop])


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.label)
def test_stored_scales_are_what_was_computed_with(scheme: Scheme) -> None:
    tile = quantize_rows(f32(4, 128), scheme)
    if scheme.group_size:
        np.testing.assert_array_equal(tile.scales.astype(np.float16).astype("f4"), tile.scales)
    least, most = scheme.limits
    assert tile.values.min() >= least
    assert tile.values.max() <= most


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(SCHEMES),
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=64, max_size=64),
)
def test_error_is_within_half_a_step_of_the_plain_range(scheme: Scheme, data: list[float]) -> None:
    """Zero is exact, and no group is worse than plain rounding could be."""
    row = np.array([data], np.float32)
    row[0, 5] = 0
    tile = quantize_rows(row, scheme)
    back = dequantize_rows(tile, scheme.group_size)
    assert np.isfinite(back).all()
    assert back[0, 5] == 0
    size = scheme.group_size or 64
    least, most = scheme.limits
    x, y = row.reshape(-1, size), back.reshape(-1, size)
    spread = np.maximum(x.max(1), 0) - np.minimum(x.min(1), 0)
    reach = np.abs(x).max(1)
    step = reach / most if scheme.symmetric else spread / (most - least)
    # rounding of a value and of the zero point, and float16 scales (2^-11 of up to 255 steps)
    bound = size * (1.02 * step + reach * 2.0**-10 + 256 * 2.0**-24) ** 2
    assert (np.square(x - y).sum(1) <= bound).all()


def test_extremes() -> None:
    for scheme in SCHEMES:
        zero = dequantize_rows(
            quantize_rows(np.zeros((2, 64), np.float32), scheme), scheme.group_size
        )
        assert not zero.any()
        tiny = quantize_rows(np.full((1, 64), 1e-38, np.float32), scheme)
        assert (tiny.scales > 0).all()
        huge = quantize_rows(np.full((1, 64), 3e38, np.float32), scheme)
        assert np.isfinite(huge.scales).all()


def test_the_first_of_equal_ranges_is_taken() -> None:
    """-56 is -7 steps of 8 and -8 steps of 7: neither loses anything."""
    rows = np.zeros((1, 64), np.float32)
    rows[0, 3] = -56
    tile = quantize_rows(rows, Scheme(4, 32, True))
    assert tile.scales[0, 0] == 8
    assert tile.values[0, 3] == -7


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.label)
def test_the_least_and_the_greatest_scale(scheme: Scheme) -> None:
    """Groups store float16, channels every float that is no denormal."""
    tiny = np.finfo(np.float32).tiny
    least, most = (2.0**-24, 65504.0) if scheme.group_size else (tiny, np.inf)
    rows = np.zeros((3, 64), np.float32)
    rows[0] = least * scheme.limits[1]
    rows[1] = least * scheme.limits[1] / 16
    rows[2] = 1e30
    scales = quantize_rows(rows, scheme).scales.astype(np.float32)
    np.testing.assert_array_equal(scales[0], np.float32(least))
    np.testing.assert_array_equal(scales[1], np.float32(least if scheme.group_size else 1))
    assert (scales[2] == most if scheme.group_size else scales[2] > 1e27).all()


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.label)
def test_a_row_may_be_longer_than_what_is_quantized_at_a_time(scheme: Scheme) -> None:
    rows = f32(2, CHUNK_ELEMENTS + 64)
    whole = quantize_rows(rows, scheme)
    second = quantize_rows(rows[1:], scheme)
    np.testing.assert_array_equal(whole.values[1:], second.values)
    if scheme.group_size:
        end = quantize_rows(rows[:, -64:], scheme)
        np.testing.assert_array_equal(whole.values[:, -64:], end.values)


def test_search_lowers_the_error() -> None:
    rows = f32(64, 128)
    for scheme in (Scheme(4, 32, True), Scheme(4, 32, False)):
        plain = np.concatenate(
            [
                (q - zero) * scale - x
                for x in rows.reshape(-1, 32)
                for q, scale, zero in [oracle_group(x, scheme, 1.0)]
            ]
        )
        best = dequantize_rows(quantize_rows(rows, scheme), 32) - rows
        assert np.square(best).mean() < 0.97 * np.square(plain).mean()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_damaged_weights_are_named(bad: float) -> None:
    rows = f32(2, 64)
    rows[1, 3] = bad
    with pytest.raises(InputError, match=r"layers\.0\.w: the weight holds infinities or NaN"):
        quantize_rows(rows, INT8_ROWS, "layers.0.w")


def test_a_large_weight_is_read_by_tiles_only() -> None:
    """[128256, 2048]: no read is larger than the tile that was asked for."""
    reads = []

    def read(start: int, stop: int) -> Array:
        reads.append(stop - start)
        return np.ones((stop - start, 2048), np.float32)

    weight = LazyWeight(read, (128256, 2048), ir.DataType.FLOAT, "head")
    rows = quantized_rows(weight, Scheme(4, 32, False), "head")
    parts = [rows.values(), rows.scales(), rows.zero_points()]
    assert [tuple(p.shape) for p in parts if p is not None] == [
        (2048, 128256),
        (64, 128256),
        (64, 128256),
    ]
    assert reads == []
    tracemalloc.start()
    for start, stop in list(rows.values().tiles(multiple=64))[:2]:
        tile = rows.read(start, stop)
        assert tile.values.shape == (stop - start, 2048)
        assert tile.values.nbytes <= 1 << 20
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert reads == [512, 512]
    assert peak < 12 << 20  # one tile in float32 is 4 MiB; the weight would be 1 GiB


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_scale_of_nothing_but_zeros_is_1(symmetric: bool) -> None:
    found = quantize_rows(np.zeros((2, 64), np.float32), Scheme(4, 32, symmetric))
    np.testing.assert_array_equal(found.scales.astype(np.float32), 1)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.label)
def test_what_becomes_zero_is_exactly_zero(scheme: Scheme) -> None:
    rows = f32(9, 128)
    rows[2] = np.abs(rows[2])  # ranges end at zero
    sparse = replace(scheme, zeros=True)
    assert zeros_of(rows, scheme) is None
    rows[:, ::3] = 0
    zeros = zeros_of(rows, sparse)
    assert zeros is not None
    np.testing.assert_array_equal(zeros, rows == 0)
    plain, kept = quantize_rows(rows, sparse), quantize_rows(rows + 1, sparse, "w", zeros)
    for tile in (plain, kept):
        assert not dequantize_rows(tile, scheme.group_size)[:, ::3].any()
    assert dequantize_rows(kept, scheme.group_size)[2, 1::3].all()


@pytest.mark.parametrize("share", [1.0, 0.95, 0.9, 0.85])
def test_each_narrower_range_is_tried_without_symmetry(share: float) -> None:
    """Weights on the grid of a share of the range, but for one that makes it so wide."""
    scale = np.float32(np.float16(np.float32(share) / np.float32(15)))
    row = np.tile(np.arange(16, dtype=np.float32) * scale, 8)
    row[-1] = 1.0
    tile = quantize_rows(row[None], Scheme(4, 128, False))
    assert tile.scales.tolist() == [[scale]]


@pytest.mark.parametrize("bits", [4, 8])
def test_a_group_below_zero_has_the_greatest_zero_point(bits: int) -> None:
    most = 2**bits - 1
    row = -np.arange(most + 1, dtype=np.float32)
    tile = quantize_rows(row[None], Scheme(bits, most + 1, False))
    assert tile.zero_points is not None
    assert tile.zero_points.tolist() == [[most]]
    np.testing.assert_array_equal(dequantize_rows(tile, most + 1), row[None])
