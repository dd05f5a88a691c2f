"""Lazy weights: rows on demand, orientation, concatenation, quantized parts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.quantized_rows import QuantizedRows, QuantizedTile
from optc.ir.weights import (
    TILE_ELEMENTS,
    LazyWeight,
    as_lazy,
    concatenate_rows,
    permute_rows,
    take_rows,
    transposed_blocks,
)
from tests.support.ir_text import Array, f32


class Counted:
    """A row reader that remembers what was read."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.reads: list[tuple[int, int]] = []

    def __call__(self, start: int, stop: int) -> Array:
        self.reads.append((start, stop))
        return self.array[start:stop]


def test_nothing_is_read_before_it_is_asked_for() -> None:
    reader = Counted(f32(6, 4))
    weight = LazyWeight(reader, (6, 4), ir.DataType.FLOAT, "w", transposed=True)
    assert tuple(weight.shape) == (4, 6)
    assert tuple(weight.transpose().shape) == (6, 4)
    assert reader.reads == []
    np.testing.assert_array_equal(weight.numpy(), reader.array.T)
    np.testing.assert_array_equal(weight.transpose().numpy(), reader.array)
    assert reader.reads == [(0, 6), (0, 6)]  # and nothing is kept


def test_map_rows_follows_the_orientation() -> None:
    weight = LazyWeight(Counted(f32(6, 4)), (6, 4), ir.DataType.FLOAT, "w", transposed=True)
    doubled = weight.map_rows(lambda rows: rows * 2, ir.DataType.FLOAT)
    np.testing.assert_array_equal(doubled.numpy(), 2 * f32(6, 4).T)
    summed = weight.map_rows(lambda rows: rows.sum(1, keepdims=True), ir.DataType.FLOAT, width=1)
    assert tuple(summed.shape) == (1, 6)


def test_tiles_cover_the_rows() -> None:
    width = TILE_ELEMENTS // 10
    weight = LazyWeight(Counted(f32(1, 1)), (25, width), ir.DataType.FLOAT, "w")
    assert list(weight.tiles()) == [(0, 10), (10, 20), (20, 25)]
    assert list(weight.tiles(multiple=4)) == [(0, 8), (8, 16), (16, 24), (24, 25)]


def test_as_lazy_views_columns_as_rows() -> None:
    array = f32(4, 6)
    weight = as_lazy(ir.tensor(array), transposed=True)
    np.testing.assert_array_equal(weight.read_rows(1, 3), array.T[1:3])
    np.testing.assert_array_equal(weight.numpy(), array)
    assert as_lazy(weight, transposed=True) is weight
    with pytest.raises(ValueError, match="rows of the other axis"):
        as_lazy(weight)


def test_concatenated_rows_read_only_the_parts_they_need() -> None:
    readers = [Counted(f32(n, 4, seed=n)) for n in (3, 2, 5)]
    weights = [
        LazyWeight(r, r.array.shape, ir.DataType.FLOAT, "w", transposed=True) for r in readers
    ]
    merged = concatenate_rows(weights, "merged")
    whole = np.concatenate([r.array for r in readers])
    for start, stop in [(0, 10), (1, 3), (2, 4), (4, 9), (5, 5)]:
        if start < stop:
            np.testing.assert_array_equal(merged.read_rows(start, stop), whole[start:stop])
    readers[0].reads.clear()
    merged.read_rows(4, 6)
    assert readers[0].reads == []
    np.testing.assert_array_equal(merged.numpy(), whole.T)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("group", [0, 4])
def test_quantized_parts_share_one_source(bits: int, symmetric: bool, group: int) -> None:
    parameters = (6, 2) if group else (6,)
    tile = QuantizedTile(
        np.arange(48).reshape(6, 8).astype(np.int8 if symmetric else np.uint8) % 8,
        f32(*parameters),
        None if symmetric else np.full(parameters, 3, np.uint8),
    )

    def read(start: int, stop: int) -> QuantizedTile:
        zero = None if tile.zero_points is None else tile.zero_points[start:stop]
        return QuantizedTile(tile.values[start:stop], tile.scales[start:stop], zero)

    rows = QuantizedRows(read, 6, 8, bits, group, symmetric, "w")
    values, scales, zero_points = rows.values(), rows.scales(), rows.zero_points()
    assert values.whole is scales.whole is rows
    assert values.dtype.name == f"{'' if symmetric else 'U'}INT{bits}"
    np.testing.assert_array_equal(values.numpy().astype(np.uint8), tile.values.T.astype(np.uint8))
    np.testing.assert_array_equal(scales.numpy(), tile.scales.T)
    assert tuple(scales.shape) == ((2, 6) if group else (6,))
    if zero_points is None:
        assert symmetric
        return
    assert zero_points.dtype == values.dtype
    assert tile.zero_points is not None
    want = tile.zero_points.T.astype(np.uint8 if bits == 8 else ml_dtypes.uint4)
    np.testing.assert_array_equal(zero_points.numpy(), want)


@pytest.mark.parametrize("transposed", [False, True])
def test_rows_are_taken_in_tiles(transposed: bool) -> None:
    table = np.random.default_rng(1).normal(size=(200, 3)).astype(np.float32)
    reader = Counted(table)
    kept = np.array([0, 1, 2, 9, 40, 41, 45, 199])
    weight = LazyWeight(reader, table.shape, ir.DataType.FLOAT, "w", transposed=transposed)
    taken = take_rows(weight, kept)
    wanted = table[kept]
    np.testing.assert_array_equal(taken.numpy(), wanted.T if transposed else wanted)
    assert reader.reads == [(0, 10), (40, 46), (199, 200)], "what lies between is not read"
    for start, stop in [(0, 1), (2, 5), (3, 8), (7, 8)]:
        np.testing.assert_array_equal(taken.read_rows(start, stop), wanted[start:stop])


@pytest.mark.parametrize("transposed", [False, True])
def test_rows_in_another_order(transposed: bool) -> None:
    table = np.random.default_rng(1).normal(size=(200, 3)).astype(np.float32)
    reader = Counted(table)
    weight = LazyWeight(reader, table.shape, ir.DataType.FLOAT, "w", transposed=transposed)
    order = np.array([3, 1, 150, 3, 2, 149, 0])
    mixed = permute_rows(weight, order)
    wanted = table[order]
    np.testing.assert_array_equal(mixed.numpy(), wanted.T if transposed else wanted)
    assert reader.reads == [(0, 4), (149, 151)], "what lies between is not read"
    for start, stop in [(0, 1), (2, 5), (3, 7)]:
        np.testing.assert_array_equal(mixed.read_rows(start, stop), wanted[start:stop])


def test_blocks_of_rows_turned() -> None:
    array = f32(15, 4)  # three blocks of 5 rows
    weight = LazyWeight(lambda a, b: array[a:b], (15, 4), ir.DataType.FLOAT, "w", transposed=True)
    turned = transposed_blocks(weight, 5)
    expected = array.reshape(3, 5, 4).transpose(0, 2, 1).reshape(12, 5)
    assert turned.rows_shape == (12, 5)
    for start in range(12):
        for stop in range(start + 1, 13):
            np.testing.assert_array_equal(turned.read_rows(start, stop), expected[start:stop])
    np.testing.assert_array_equal(turned.numpy(), expected.T)  # the graph sees what it saw turned
