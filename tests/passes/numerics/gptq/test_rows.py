"""GPTQ against its definition: after each column all others are fitted anew by least squares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from optc.errors import InputError
from optc.ir.quantized_rows import QuantizedTile
from optc.passes.numerics.affine import dequantize_rows, quantize_rows
from optc.passes.numerics.gptq import rows as rows_module
from optc.passes.numerics.gptq.factor import DAMPING, Factor, factor_of
from optc.passes.numerics.gptq.grids import grid_of
from optc.passes.numerics.gptq.rows import gptq_rows, tile_rows
from optc.passes.numerics.scheme import Scheme

Float64 = npt.NDArray[np.float64]
SCHEMES = [
    Scheme(8, 0, True),
    Scheme(8, 32, True),
    Scheme(8, 32, False),
    Scheme(4, 32, True),
    Scheme(4, 32, False),
    Scheme(4, 128, False),
    Scheme(4, 32, False, integer_scales=True),
    Scheme(6, 64, False, integer_scales=True),
    Scheme(3, 64, False, integer_scales=True),
    Scheme(2, 32, False, integer_scales=True),
]


def label(scheme: Scheme) -> str:
    return scheme.label


def correlated(columns: int, seed: int = 0) -> Float64:
    """E[x xᵀ] of inputs most of whose energy lies in a quarter of the dimensions."""
    draw = np.random.default_rng(seed)
    few = max(1, columns // 4)
    x = draw.normal(size=(columns, few)) @ draw.normal(size=(few, 4 * columns))
    x = 0.3 * x + draw.normal(size=x.shape) * np.exp(draw.normal(size=(columns, 1)))
    return np.asarray(x @ x.T / x.shape[1])


def weight(rows: int, columns: int, seed: int = 1) -> npt.NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_t(5, (rows, columns)) * 0.02).astype(np.float32)


def loss(tile: QuantizedTile, w: npt.NDArray[np.float32], scheme: Scheme, h: Float64) -> float:
    """tr(E H Eᵀ)."""
    error = dequantize_rows(tile, scheme.group_size).astype(np.float64) - w
    return float(np.einsum("nk,kl,nl->", error, h, error))


def by_definition(
    w: npt.NDArray[np.float32], hessian: Float64, factor: Factor, scheme: Scheme
) -> QuantizedTile:
    """Optimal brain quantization in float64: the inverse of what is left of H is computed anew for
    each column, and the others change by -e / G_jj * G_j."""
    size = scheme.group_size or w.shape[1]
    left = hessian[np.ix_(factor.order, factor.order)].copy()
    left[np.diag_indices_from(left)] += DAMPING * left.diagonal().mean()
    x = w.T[factor.order].astype(np.float64)
    grid = grid_of(w.T.copy(), scheme, "w")
    values = np.empty(x.shape, np.float32)
    for j in range(len(x)):
        if j % size == 0:
            group = x[j : j + size].astype(np.float32)
            grid.open(int(factor.order[j]) // size, group, factor.weights[j : j + size])
        values[j], near = grid.round(x[j].astype(np.float32))
        inverse = np.linalg.inv(left[j:, j:])
        x[j:] -= np.outer(inverse[:, 0] / inverse[0, 0], x[j] - near)
    in_order = np.empty_like(values)
    in_order[factor.order] = values
    return grid.tile(in_order)


@pytest.mark.parametrize("scheme", SCHEMES, ids=label)
@pytest.mark.parametrize(("rows", "blocks"), [(1, None), (5, None), (33, (2, 16, 32))])
def test_it_is_optimal_brain_quantization_in_a_fixed_order(
    scheme: Scheme, rows: int, blocks: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if blocks is not None:
        monkeypatch.setattr(rows_module, "_BLOCKS", blocks)
    hessian, w = correlated(128), weight(rows, 128)
    factor = factor_of(hessian, scheme.group_size)
    found = gptq_rows(w, factor, scheme)
    expected = by_definition(w, hessian, factor, scheme)
    assert found.values.dtype == expected.values.dtype
    same = np.all(found.values == expected.values, axis=1)
    assert same.mean() > 0.9, "a near tie in one column changes those behind it"
    np.testing.assert_array_equal(found.scales[same], expected.scales[same])
    assert loss(found, w, scheme, hessian) == pytest.approx(
        loss(expected, w, scheme, hessian), rel=0.05
    )


@pytest.mark.parametrize("scheme", SCHEMES, ids=label)
def test_independent_inputs_of_one_size_give_plain_rounding(scheme: Scheme) -> None:
    w = weight(37, 128)
    found = gptq_rows(w, factor_of(np.eye(128), scheme.group_size), scheme)
    for mine, plain in zip(found, quantize_rows(w, scheme), strict=True):
        assert (mine is None) == (plain is None)
        if mine is not None and plain is not None:
            assert mine.dtype == plain.dtype
            assert mine.flags.c_contiguous, "packing looks at bytes"
            np.testing.assert_array_equal(mine, plain)


@pytest.mark.parametrize("scheme", SCHEMES, ids=label)
def test_of_correlated_inputs_much_less_is_lost(scheme: Scheme) -> None:
    hessian, w = correlated(256), weight(96, 256)
    found = gptq_rows(w, factor_of(hessian, scheme.group_size), scheme)
    plain = quantize_rows(w, scheme)
    assert loss(found, w, scheme, hessian) < 0.6 * loss(plain, w, scheme, hessian)


@pytest.mark.parametrize("scheme", SCHEMES, ids=label)
def test_a_row_depends_on_nothing_but_the_row(scheme: Scheme) -> None:
    """Whatever is rounded with it, to the bit: readers take any rows together."""
    hessian, w = correlated(128), weight(300, 128)
    factor = factor_of(hessian, scheme.group_size)
    whole = gptq_rows(w, factor, scheme)
    for part in (slice(0, 1), slice(3, 10), slice(255, 258), slice(290, 300)):
        for some, every in zip(gptq_rows(w[part], factor, scheme), whole, strict=True):
            if some is not None and every is not None:
                np.testing.assert_array_equal(some, every[part])


def test_fewer_tokens_than_inputs_and_inputs_that_are_always_zero() -> None:
    draw = np.random.default_rng(3)
    x = draw.normal(size=(128, 20))
    x[[0, 40, 127]] = 0.0
    hessian, w, scheme = x @ x.T / 20, weight(16, 128), Scheme(4, 32, False)
    factor = factor_of(hessian, 32)
    assert np.isfinite(factor.shares).all()
    found, plain = gptq_rows(w, factor, scheme), quantize_rows(w, scheme)
    assert loss(found, w, scheme, hessian) < 0.6 * loss(plain, w, scheme, hessian)


def test_weights_of_nan_are_refused_by_name() -> None:
    w = weight(3, 64)
    w[1, 5] = np.nan
    for scheme in (Scheme(8, 0, True), Scheme(4, 32, False, integer_scales=True)):
        factor = factor_of(np.eye(64), scheme.group_size)
        with pytest.raises(InputError, match=r"layers\.3: the weight holds infinities or NaN"):
            gptq_rows(w, factor, scheme, "model.layers.3")


@pytest.mark.parametrize("scheme", SCHEMES, ids=label)
def test_pruned_weights_stay_zero_and_the_rest_makes_up_for_their_targets(scheme: Scheme) -> None:
    """Rows are targets, in which what was pruned is not zero any more."""
    sparse, hessian, target = replace(scheme, zeros=True), correlated(128), weight(300, 128)
    zeros = np.random.default_rng(0).random(target.shape) < 0.5
    target[zeros] *= np.float32(0.2)
    factor = factor_of(hessian, scheme.group_size)
    found = gptq_rows(target, factor, sparse, "w", zeros)
    near = dequantize_rows(found, scheme.group_size)
    assert not near[zeros].any()
    cut = quantize_rows(target, sparse, "w", zeros)
    assert not dequantize_rows(cut, scheme.group_size)[zeros].any()
    assert loss(found, target, scheme, hessian) < 0.9 * loss(cut, target, scheme, hessian)
    part = gptq_rows(target[250:260], factor, sparse, "w", zeros[250:260])
    np.testing.assert_array_equal(part.values, found.values[250:260])


def test_tiles_of_a_whole_weight_grow_with_its_rows_and_shrink_with_its_columns() -> None:
    shapes = ((255, 64), (1024, 64), (2048, 64), (8192, 2048), (2048, 8192), (8192, 16384))
    assert [tile_rows(*shape) for shape in shapes] == [256, 512, 1024, 4096, 1024, 512]


def test_larger_tiles_round_alike() -> None:
    """But for sums of another order: a weight on the edge of two values may go the other way."""
    scheme, factor = Scheme(4, 32, False, integer_scales=True), factor_of(correlated(64), 32)
    w = weight(700, 64)
    small, large = gptq_rows(w, factor, scheme), gptq_rows(w, factor, scheme, tile=512)
    assert (small.values == large.values).mean() > 0.999
    again = gptq_rows(w[100:612], factor, scheme, tile=512)
    np.testing.assert_array_equal(again.values, large.values[100:612])
