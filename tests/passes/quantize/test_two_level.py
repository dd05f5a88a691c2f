"""Two-level quantization against plain Python, group by group, and its bounds as properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.errors import InputError
from optc.ir.quantized_rows import QuantizedTile
from optc.passes.quantize.affine import dequantize_rows, quantize_rows
from optc.passes.quantize.scheme import Scheme
from tests.ir_text import Array, f32

TWO_LEVEL = Scheme(4, 32, False, integer_scales=True)
FLOAT_SCALES = Scheme(4, 32, False)


def greatest_scale(zero: int) -> int:
    return max(s for s in range(1, 17) if -zero * s >= -128 and (15 - zero) * s <= 127)


def oracle_row(row: Array, size: int) -> tuple[Array, np.float32, list[int], list[int]]:
    """Values [K], channel scale, integer scales and zero points [G], by the module's words."""
    groups = row.reshape(-1, size)
    steps, zeros = [], []
    for x in groups:
        low, high = np.float32(min(x.min(), 0)), np.float32(max(x.max(), 0))
        steps.append(high / np.float32(15) - low / np.float32(15))
        zeros.append(int(np.clip(np.rint(-low / steps[-1]), 0, 15)) if steps[-1] > 0 else 0)
    wanted = [step / np.float32(greatest_scale(z)) for step, z in zip(steps, zeros, strict=True)]
    channel = np.float32(max(wanted)) or np.float32(1)
    values, scales = [], []
    for x, step, zero in zip(groups, steps, zeros, strict=True):
        tries = []
        for offset in (0, -1, -2, 1):
            s = int(np.clip(np.rint(step / channel) + offset, 1, greatest_scale(zero)))
            ratio = x / np.float32(channel * np.float32(s))
            q = np.clip(np.rint(ratio) + zero, 0, 15).astype(int)
            tries.append((float(np.square((q - zero) * s * np.float64(channel) - x).sum()), s, q))
        _, s, q = min(tries, key=lambda item: item[0])
        values.append(q)
        scales.append(s)
    return np.concatenate(values), channel, scales, zeros


@pytest.mark.parametrize("size", [32, 64])
def test_equals_the_oracle(size: int) -> None:
    rows = f32(9, 128) * np.float32(0.02)
    rows[3] = np.abs(rows[3])  # one-sided groups
    rows[4] *= 1000
    rows[5, 7] = 1.0  # a group that is far larger than the others
    rows[6] = 0
    tile = quantize_rows(rows, Scheme(4, size, False, integer_scales=True))
    assert tile.zero_points is not None
    assert tile.group_scales is not None
    for n, row in enumerate(rows):
        values, channel, scales, zeros = oracle_row(row, size)
        np.testing.assert_array_equal(tile.values[n], values)
        assert tile.scales[n] == channel
        np.testing.assert_array_equal(tile.group_scales[n], scales)
        np.testing.assert_array_equal(tile.zero_points[n], zeros)


def test_tiles_do_not_change_the_result() -> None:
    rows = f32(50, 4096)  # more than one chunk
    whole = quantize_rows(rows, TWO_LEVEL)
    for start, stop in [(0, 1), (7, 33), (33, 50)]:
        part = quantize_rows(rows[start:stop], TWO_LEVEL)
        for got, want in zip(part, whole, strict=True):
            np.testing.assert_array_equal(got, want[start:stop])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=64, max_size=64))
def test_weights_are_int8_per_channel_and_zero_is_exact(data: list[float]) -> None:
    row = np.array([data], np.float32)
    row[0, 5] = 0
    tile = quantize_rows(row, TWO_LEVEL)
    steps = int8_steps(tile, 32)
    assert -128 <= steps.min() <= steps.max() <= 127
    assert dequantize_rows(tile, 32)[0, 5] == 0
    np.testing.assert_array_equal(
        dequantize_rows(tile, 32), steps.astype(np.float32) * tile.scales[:, None]
    )


def int8_steps(tile: QuantizedTile, size: int) -> Array:
    """(q - z) * s of every weight."""
    assert tile.zero_points is not None
    assert tile.group_scales is not None
    zeros, scales = (
        np.repeat(p.astype(int), size, 1) for p in (tile.zero_points, tile.group_scales)
    )
    result: Array = (tile.values.astype(int) - zeros) * scales
    return result


def test_loses_little_beside_float_scales() -> None:
    rows = f32(64, 1024)
    errors = [
        np.square(dequantize_rows(quantize_rows(rows, scheme), 32) - rows).mean()
        for scheme in (TWO_LEVEL, FLOAT_SCALES)
    ]
    assert errors[0] < 1.05 * errors[1]


def test_as_float_scales_it_is_the_same_weight() -> None:
    tile = quantize_rows(f32(8, 128), TWO_LEVEL)
    floats = tile.with_float_scales()
    assert floats.group_scales is None
    assert floats.scales.shape == (8, 4)
    np.testing.assert_array_equal(floats.scales, floats.scales.astype(np.float16))
    np.testing.assert_allclose(dequantize_rows(floats, 32), dequantize_rows(tile, 32), rtol=2**-11)
    plain = quantize_rows(f32(8, 128), FLOAT_SCALES)
    assert plain.with_float_scales() is plain


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
