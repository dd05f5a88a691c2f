"""Scaled and mixed weights are the products they are stated to be, whichever rows are read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.quantized_rows import QuantizedRows, QuantizedTile
from optc.ir.weights import Given, LazyWeight, as_lazy
from optc.passes.quantize.folding.weights import (
    mixed_columns,
    mixed_rows,
    on_rows,
    scaled_columns,
    scaled_rows,
)
from tests.support.ir_text import Array, f32

N, K = 600, 48
W, BY_COLUMN, BY_ROW = f32(N, K), f32(K), f32(N, seed=1)
SMALL, WHOLE, TALL = f32(12, 12), f32(K, K), f32(N, N)

REWRITES: dict[str, tuple[Callable[[LazyWeight], LazyWeight], Array]] = {
    "columns scaled": (lambda w: scaled_columns(w, BY_COLUMN), W * BY_COLUMN),
    "rows scaled": (lambda w: scaled_rows(w, BY_ROW), W * BY_ROW[:, None]),
    "columns mixed": (lambda w: mixed_columns(w, WHOLE), W @ WHOLE),
    "each 12 columns mixed": (
        lambda w: mixed_columns(w, SMALL),
        (W.reshape(-1, 12) @ SMALL).reshape(N, K),
    ),
    "rows mixed": (lambda w: mixed_rows(w, TALL), TALL @ W),
    "each 12 rows mixed": (
        lambda w: mixed_rows(w, SMALL),
        np.concatenate([SMALL @ W[at : at + 12] for at in range(0, N, 12)]),
    ),
    "some rows mixed": (
        lambda w: on_rows(w, 24, 48, lambda rows: mixed_rows(rows, SMALL)),
        np.concatenate([W[:24], SMALL @ W[24:36], SMALL @ W[36:48], W[48:]]),
    ),
    "all rows mixed": (
        lambda w: on_rows(w, 0, N, lambda rows: mixed_rows(rows, SMALL)),
        np.concatenate([SMALL @ W[at : at + 12] for at in range(0, N, 12)]),
    ),
}


@pytest.mark.parametrize("name", REWRITES)
def test_it_is_the_product_and_rows_do_not_depend_on_what_is_read_with_them(name: str) -> None:
    rewrite, want = REWRITES[name]
    weight = as_lazy(ir.tensor(np.ascontiguousarray(W.T), name="w"), transposed=True)
    lazy = rewrite(weight)
    assert (lazy.rows_shape, lazy.transposed, lazy.name) == ((N, K), True, "w")
    whole = lazy.read_rows(0, N)
    assert whole.dtype == np.float32
    np.testing.assert_allclose(whole, want, rtol=1e-5, atol=1e-4)
    for start, stop in ((0, 1), (23, 49), (255, 257), (300, 600), (599, 600)):
        np.testing.assert_array_equal(lazy.read_rows(start, stop), whole[start:stop])


def test_vectors_are_scaled_too() -> None:
    lazy = scaled_rows(as_lazy(ir.tensor(BY_ROW)), BY_ROW)
    np.testing.assert_array_equal(lazy.read_rows(3, 9), (BY_ROW * BY_ROW)[3:9])


def test_weights_of_other_types_become_float32() -> None:
    half = as_lazy(ir.tensor(W.astype(np.float16), name="w"))
    lazy = scaled_columns(half, BY_COLUMN)
    assert lazy.dtype == ir.DataType.FLOAT
    np.testing.assert_array_equal(
        lazy.read_rows(0, 2), W[:2].astype(np.float16).astype(np.float32) * BY_COLUMN
    )


def test_mixing_rows_reads_a_tile_of_them_at_a_time() -> None:
    """Memory stays that of tiles, however tall the weight is."""
    reads: list[int] = []

    def read(start: int, stop: int) -> Array:
        reads.append(stop - start)
        return W[start:stop]

    lazy = mixed_rows(LazyWeight(read, (N, K), ir.DataType.FLOAT, "w"), TALL)
    lazy.read_rows(0, 10)
    assert sum(reads) == N
    assert max(reads) <= 256


@pytest.mark.parametrize(
    ("bits", "group_size", "floats"), [(4, 32, False), (4, 32, True), (8, 0, False)]
)
def test_rows_stay_on_their_grid_where_factors_are_powers_of_two(
    bits: int, group_size: int, floats: bool
) -> None:
    draw = np.random.default_rng(1)
    groups = 64 // (group_size or 64)
    values = draw.integers(0, 1 << bits, (40, 64)).astype(np.uint8)
    zeros = draw.uniform(0, 15, (40, groups)).astype(np.float32 if floats else np.uint8)
    scales = draw.uniform(0.01, 1, (40, groups)).astype(np.float32)
    tile = QuantizedTile(values, scales, zeros)

    def read(start: int, stop: int) -> QuantizedTile:
        return QuantizedTile(*(None if part is None else part[start:stop] for part in tile))

    rows = QuantizedRows(read, 40, 64, bits, group_size, False, "w", float_zeros=floats)
    weight = LazyWeight(rows.floats, (40, 64), ir.DataType.FLOAT, "w", given=Given("Q4_1", rows))
    factors = np.exp2(draw.integers(-4, 5, 40)).astype(np.float32)
    scaled = scaled_rows(weight, factors)
    assert scaled.given is not None
    grid = scaled.given.rows
    assert isinstance(grid, QuantizedRows)
    np.testing.assert_array_equal(grid.read(7, 30).values, values[7:30])
    np.testing.assert_array_equal(grid.floats(7, 30), scaled.read_rows(7, 30))
    np.testing.assert_array_equal(scaled.read_rows(0, 40), rows.floats(0, 40) * factors[:, None])
    assert scaled_rows(weight, factors * 1.5).given is None
