"""A quantized weight as its parts, and its integer groups as int8 per channel."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.quantized_rows import QuantizedRows, QuantizedTile
from tests.support.ir_text import Array

N, K, GROUP = 6, 64, 32


def rows(bits: int, *, group: int, symmetric: bool, integer: bool = False) -> QuantizedRows:
    random = np.random.default_rng(bits)
    low, high = (-7, 8) if symmetric else (0, min(1 << bits, 16))
    kind = np.int8 if symmetric else np.uint8
    values = random.integers(low, high, (N, K)).astype(kind)
    shape = (N, K // group) if group else (N,)
    scales = random.random((N,) if integer else shape).astype(np.float32)
    zeros = None if symmetric else random.integers(0, 8, shape).astype(np.uint8)
    groups = random.integers(1, 8, shape).astype(np.uint8) if integer else None

    def read(start: int, stop: int) -> QuantizedTile:
        part = slice(start, stop)
        return QuantizedTile(
            values[part],
            scales[part],
            None if zeros is None else zeros[part],
            None if groups is None else groups[part],
        )

    return QuantizedRows(read, N, K, bits, group, symmetric, "w", integer)


@pytest.mark.parametrize(
    ("weight", "kind", "scales", "zeros"),
    [
        (rows(8, group=0, symmetric=True), "INT8", (N,), None),
        (rows(8, group=GROUP, symmetric=False), "UINT8", (2, N), ("UINT8", (2, N))),
        (rows(4, group=GROUP, symmetric=True), "INT4", (2, N), None),
        (rows(4, group=GROUP, symmetric=False), "UINT4", (2, N), ("UINT4", (2, N))),
        (rows(4, group=GROUP, symmetric=False, integer=True), "UINT4", (N,), ("UINT8", (2, N))),
        (rows(6, group=GROUP, symmetric=False, integer=True), "UINT8", (N,), ("UINT8", (2, N))),
    ],
    ids=["int8", "int8 groups", "int4", "int4 zero points", "integer scales", "6 bits"],
)
def test_the_parts_as_the_graph_sees_them(
    weight: QuantizedRows,
    kind: str,
    scales: tuple[int, ...],
    zeros: tuple[str, tuple[int, ...]] | None,
) -> None:
    tile = weight.read(0, N)
    values = weight.values()
    assert (values.dtype, tuple(values.shape)) == (ir.DataType[kind], (K, N))
    np.testing.assert_array_equal(values.numpy().astype(int).T, tile.values)
    assert tuple(weight.scales().shape) == scales
    np.testing.assert_array_equal(weight.scales().numpy().reshape(scales), _seen(tile.scales))
    zero_points = weight.zero_points()
    assert (zero_points is None) == (zeros is None)
    if zero_points is not None and zeros is not None and tile.zero_points is not None:
        assert (zero_points.dtype, tuple(zero_points.shape)) == (ir.DataType[zeros[0]], zeros[1])
        np.testing.assert_array_equal(zero_points.numpy().astype(int), tile.zero_points.T)
    groups = weight.group_scales()
    assert (groups is None) == (not weight.integer_scales)
    if groups is not None and tile.group_scales is not None:
        np.testing.assert_array_equal(groups.numpy(), tile.group_scales.T)
    assert values.whole is weight.scales().whole is weight


def _seen(scales: Array) -> Array:
    return scales.T if scales.ndim == 2 else scales


def test_integer_scales_become_int8_of_the_same_weights() -> None:
    weight = rows(4, group=GROUP, symmetric=False, integer=True)
    tile, narrow = weight.read(1, 4), weight.as_int8()
    assert (narrow.bits, narrow.group_size, narrow.symmetric, narrow.integer_scales) == (
        8,
        0,
        True,
        False,
    )
    assert tile.group_scales is not None
    assert tile.zero_points is not None
    wide = tile.values.reshape(3, 2, GROUP).astype(int) * tile.group_scales[:, :, None].astype(int)
    wide -= tile.zero_points[:, :, None].astype(int)
    np.testing.assert_array_equal(narrow.read(1, 4).values, wide.reshape(3, K))
    np.testing.assert_array_equal(narrow.read(1, 4).scales, tile.scales)
    assert narrow.values().dtype is ir.DataType.INT8


def test_other_weights_stay_as_they_are() -> None:
    weight = rows(4, group=GROUP, symmetric=False)
    assert weight.as_int8() is weight
    tile = weight.read(0, N)
    assert tile.as_int8() is tile
    assert tile.scales.dtype == np.float32
    assert weight.values().numpy().dtype == ml_dtypes.uint4


def test_what_a_reader_owes_is_missed() -> None:
    bare = rows(8, group=0, symmetric=True).read
    weight = QuantizedRows(bare, N, K, 4, GROUP, False, "w", integer_scales=True)
    zero_points, groups = weight.zero_points(), weight.group_scales()
    assert zero_points is not None
    assert groups is not None
    with pytest.raises(ValueError, match="w: an asymmetric weight was read without zero points"):
        zero_points.numpy()
    with pytest.raises(ValueError, match="w: a weight was read without its integer scales"):
        groups.numpy()
