"""Two-level quantization against plain Python, group by group, and its bounds as properties."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.errors import InputError
from optc.passes.numerics.affine import dequantize_rows, quantize_rows
from optc.passes.numerics.scheme import CHUNK_ELEMENTS, Scheme
from optc.passes.numerics.two_level import _RANGES, _WITH_ZERO, _grids, group_grid
from tests.support.ir_text import Array, f32

TWO_LEVEL = Scheme(4, 32, False, integer_scales=True)
FLOAT_SCALES = Scheme(4, 32, False)


NEAREST = [
    *[(1, 0, 0), (1, 0, 1 / 6), (1, 0, -1 / 6), (1, 0, 1 / 3), (1, 0, -1 / 3), (1, 0, 1 / 2)],
    *[(1, 1, 1 / 4), (1, 1, -1 / 4), (1, -1, 0), (1, 1, 0), (1, 0, -1 / 2)],
]
CUT_OFF = [
    (share, 0, above)
    for share in (1, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55)
    for above in (0, 1 / 4, -1 / 4, 1 / 2, -1 / 2)
]
CANDIDATES = {2: CUT_OFF, 3: CUT_OFF, 4: NEAREST, 5: NEAREST, 6: [(1, 0, 0), (1, -1, 0)]}
#: Of q and s.
GREATEST = {2: (3, 85), 3: (7, 36), 4: (15, 17), 5: (31, 8), 6: (63, 4)}
BITS = list(GREATEST)


def oracle_row(row: Array, size: int, bits: int) -> tuple[Array, np.float32, list[int], list[int]]:
    """Values [K], channel scale, integer scales and zero points [G], by the module's words."""
    groups = row.reshape(-1, size)
    most, greatest_scale = GREATEST[bits]
    lows = [np.float32(min(x.min(), 0)) for x in groups]
    highs = [np.float32(max(x.max(), 0)) for x in groups]
    needed = [
        max(
            high / np.float32(127),
            -low / np.float32(128),
            high / np.float32(255) - low / np.float32(255),
        )
        for low, high in zip(lows, highs, strict=True)
    ]
    channel = np.float32(max(needed)) or np.float32(1)
    values, scales, zeros = [], [], []
    for x, low, high in zip(groups / channel, lows / channel, highs / channel, strict=True):
        tries = []
        for share, fewer, above in CANDIDATES[bits]:
            nearest = np.rint((high - low) * np.float32(share) / np.float32(most))
            s = int(np.clip(nearest - fewer, 1, greatest_scale))
            middle = (low + high) * np.float32(0.5) + np.float32(above) * np.float32(s)
            last = most * s
            z = int(np.clip(np.rint(np.float32(last / 2) - middle), max(0, last - 127), 128))
            q = np.clip(np.rint((x + np.float32(z)) / np.float32(s)), 0, most).astype(int)
            tries.append((float(np.square(q * s - z - x.astype(np.float64)).sum()), s, z, q))
        _, s, z, q = min(tries, key=lambda item: item[0])
        values.append(q)
        scales.append(s)
        zeros.append(z)
    return np.concatenate(values), channel, scales, zeros


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("size", [32, 64])
def test_equals_the_oracle(size: int, bits: int) -> None:
    rows = f32(9, 128) * np.float32(0.02)
    rows[3] = np.abs(rows[3])  # one-sided groups
    rows[4] *= 1000
    rows[5, 7] = 1.0  # a group that is far larger than the others
    rows[6] = 0
    tile = quantize_rows(rows, Scheme(bits, size, False, integer_scales=True))
    assert tile.zero_points is not None
    assert tile.group_scales is not None
    for n, row in enumerate(rows):
        values, channel, scales, zeros = oracle_row(row, size, bits)
        np.testing.assert_array_equal(tile.values[n], values)
        assert tile.scales[n] == channel
        np.testing.assert_array_equal(tile.group_scales[n], scales)
        np.testing.assert_array_equal(tile.zero_points[n], zeros)


def test_tiles_do_not_change_the_result() -> None:
    rows = f32(80, 4096)
    assert rows.size > CHUNK_ELEMENTS
    whole = quantize_rows(rows, TWO_LEVEL)
    for start, stop in [(0, 1), (7, 33), (33, 80)]:
        part = quantize_rows(rows[start:stop], TWO_LEVEL)
        for got, want in zip(part, whole, strict=True):
            np.testing.assert_array_equal(got, want[start:stop])


@pytest.mark.parametrize("bits", [2, 4, 6])
def test_threads_do_not_change_the_result(bits: int) -> None:
    rows, scheme = f32(96, 4096), Scheme(bits, 128, False, integer_scales=True)
    whole = quantize_rows(rows, scheme)
    with ThreadPoolExecutor(4) as pool:
        starts = range(0, 96, 12)
        parts = list(pool.map(lambda at: quantize_rows(rows[at : at + 12], scheme), starts))
    for got, want in zip(zip(*parts, strict=True), whole, strict=True):
        np.testing.assert_array_equal(np.concatenate(got), want)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=64, max_size=64), st.sampled_from(BITS))
def test_weights_are_int8_per_channel(data: list[float], bits: int) -> None:
    rows = np.array([data], np.float32)
    tile = quantize_rows(rows, Scheme(bits, 32, False, integer_scales=True))
    assert tile.group_scales is not None
    assert tile.zero_points is not None
    scales, zeros = (np.repeat(p.astype(int), 32, 1) for p in (tile.group_scales, tile.zero_points))
    integers = tile.values.astype(int) * scales - zeros
    assert -128 <= integers.min() <= integers.max() <= 127
    int8 = tile.as_int8()
    assert int8.values.dtype == np.int8
    np.testing.assert_array_equal(int8.values, integers)
    assert int8.group_scales is None
    assert int8.zero_points is None
    np.testing.assert_array_equal(dequantize_rows(int8, 0), dequantize_rows(tile, 32))


def errors(*schemes: Scheme) -> list[float]:
    """Mean squares."""
    rows = f32(64, 1024)
    return [
        float(np.square(dequantize_rows(quantize_rows(rows, s), s.group_size) - rows).mean())
        for s in schemes
    ]


def test_loses_nothing_beside_float_scales() -> None:
    integer, floats = errors(TWO_LEVEL, FLOAT_SCALES)
    assert integer < 0.95 * floats


def test_six_bits_are_near_int8() -> None:
    """Steps of a group are three times int8's at most where the channel has normal weights."""
    int8, six, four = errors(Scheme(8, 0, True), Scheme(6, 32, False, True), TWO_LEVEL)
    assert int8 < six < four / 8


def test_a_bit_less_has_about_four_times_the_error() -> None:
    every = errors(*(Scheme(bits, 32, False, True) for bits in (6, 5, 4, 3, 2)))
    for more, fewer in pairwise(every):
        assert 2.5 * more < fewer < 5 * more


def test_few_values_do_not_cover_the_extremes() -> None:
    """The two levels of a weight that is one of two values nearly everywhere are those."""
    rows = np.where(f32(4, 64) > 0, np.float32(0.5), np.float32(-0.5))
    rows[:, 5] = 1.0
    tile = quantize_rows(rows, Scheme(2, 64, False, integer_scales=True))
    back = dequantize_rows(tile, 64)
    most = np.arange(64) != 5
    assert np.abs(back - rows)[:, most].max() < 0.15


def test_other_schemes_stay_as_they_are() -> None:
    plain = quantize_rows(f32(8, 128), FLOAT_SCALES)
    assert plain.as_int8() is plain


def test_extremes() -> None:
    for value in (0.0, 1e-38, 3e38, -3e38):
        tile = quantize_rows(np.full((2, 64), value, np.float32), TWO_LEVEL)
        assert (tile.scales > 0).all()
        assert np.isfinite(dequantize_rows(tile, 32)).all()


def test_damaged_weights_are_named() -> None:
    rows = f32(2, 64)
    rows[1, 3] = np.nan
    with pytest.raises(InputError, match=r"layers\.0\.w: the weight holds infinities or NaN"):
        quantize_rows(rows, TWO_LEVEL, "layers.0.w")


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_zero_is_a_value_of_every_group_of_pruned_weights(bits: int, share: float) -> None:
    scheme = Scheme(bits, 32, False, integer_scales=True, zeros=True)
    rows = f32(40, 256)
    rows[3] = np.abs(rows[3])  # one-sided groups
    rows[4] = -np.abs(rows[4])
    rows[5, 7] = 100.0  # groups whose scales are small
    rows[np.random.default_rng(bits).random(rows.shape) < share] = 0
    tile = quantize_rows(rows, scheme)
    assert tile.zero_points is not None
    assert tile.group_scales is not None
    most, greatest = GREATEST[bits]
    s, z = tile.group_scales.astype(int), tile.zero_points.astype(int)
    assert ((s >= 1) & (s <= greatest)).all()
    assert (z % s == 0).all()
    assert (z <= np.minimum(128, most * s)).all()
    assert (most * s - z <= 127).all()
    near = dequantize_rows(tile, 32)
    assert not near[rows == 0].any()
    assert np.square(near - rows)[:3].sum() < np.square(rows)[:3].sum() * {2: 0.2}.get(bits, 0.04)


@pytest.mark.parametrize("bits", BITS)
def test_scales_with_a_zero_are_the_greatest_that_have_one(bits: int) -> None:
    """By trying every zero point."""
    most, greatest = GREATEST[bits]

    def has(s: int) -> bool:
        return any(z % s == 0 and most * s - z <= 127 for z in range(129))

    for s in range(1, greatest + 1):
        expected = max(t for t in range(1, s + 1) if has(t))
        assert _WITH_ZERO[bits][s] == expected


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", BITS)
def test_candidates_are_the_nearest_whose_values_are_within_int8(bits: int, zeros: bool) -> None:
    """By trying every zero point, for ranges of all widths up to the widest."""
    most, greatest = GREATEST[bits]
    random = np.random.default_rng(bits)
    low = -np.float32(random.random(40) ** 2 * 128)
    high = np.float32(random.random(40) ** 2 * 127)
    low[:8], high[:8] = -128, 127
    low[8:12], high[12:16] = 0, 0
    limits = _RANGES[bits]._replace(zeros=zeros)
    assert limits.greatest_scale == greatest
    found = _grids(low, high, limits)
    assert found.scale.shape == (len(CANDIDATES[bits]), 40)
    for candidate, scales, points in zip(CANDIDATES[bits], *found, strict=True):
        share, fewer, above = candidate
        for first, last, s, z in zip(low, high, scales, points, strict=True):
            wanted = np.clip(
                np.rint((last - first) * np.float32(share) / most) - fewer, 1, greatest
            )
            step = int(_WITH_ZERO[bits][int(wanted)] if zeros else wanted)
            allowed = [
                point
                for point in range(max(0, most * step - 127), 129)
                if not zeros or (point % step == 0 and point <= most * step)
            ]
            middle = most * step / 2 - (float(first) + float(last)) / 2 - above * step
            nearest = min(abs(point - middle) for point in allowed)
            assert s == step
            assert z in allowed
            assert abs(z - middle) <= nearest + 1e-4


@pytest.mark.parametrize("bits", BITS)
def test_ranges_beyond_int8_count_up_to_its_ends(bits: int) -> None:
    """Of groups that errors of earlier columns moved: by plain Python, with weights."""
    rng = np.random.default_rng(bits)
    ends = [(-140, 20), (-20, 139), (-133, 131), (-60, 150), (-150, 5), (3, 144), (-144, -9)]
    x = np.stack([rng.uniform(low, high, 32) for low, high in ends], axis=1).astype(np.float32)
    x[0], x[1] = np.array(ends, np.float32).T
    weights = rng.uniform(0.5, 2, 32).astype(np.float32)
    grid = group_grid(x, Scheme(bits, 32, False, integer_scales=True), weights)
    most, greatest_scale = GREATEST[bits]
    for group, (low, high) in enumerate(ends):
        least, last_of_all = max(min(low, 0), -128), min(max(high, 0), 127)
        tries = []
        for share, fewer, above in CANDIDATES[bits]:
            nearest = np.rint((last_of_all - least) * np.float32(share) / np.float32(most))
            s = int(np.clip(nearest - fewer, 1, greatest_scale))
            middle = (least + last_of_all) * np.float32(0.5) + np.float32(above) * np.float32(s)
            last = most * s
            z = int(np.clip(np.rint(np.float32(last / 2) - middle), max(0, last - 127), 128))
            q = np.clip(np.rint((x[:, group] + np.float32(z)) / np.float32(s)), 0, most)
            error = np.square((q * s - z - x[:, group].astype(np.float64)) * weights).sum()
            tries.append((float(error), s, z))
        assert (grid.scale[group], grid.zero[group]) == min(tries)[1:], (low, high)


def test_the_least_normal_scale_is_kept() -> None:
    """Below it a division could overflow, and the scale is 1."""
    tiny = np.finfo(np.float32).tiny
    shape = np.linspace(0, 1, 32, dtype=np.float32)
    for reach, scale in ((127 * tiny, tiny), (126 * tiny, 1), (254 * tiny, 2 * tiny)):
        tile = quantize_rows(shape[None] * reach, TWO_LEVEL)
        assert tile.scales.tolist() == [scale]
