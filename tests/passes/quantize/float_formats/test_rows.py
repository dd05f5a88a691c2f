"""Rounding to formats: plainly against the oracle, by GPTQ against its definition."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from optc.errors import InputError
from optc.passes.numerics.gptq.factor import DAMPING, factor_of
from optc.passes.quantize.float_formats.formats import FORMATS, NVFP4, Format
from optc.passes.quantize.float_formats.rows import RoundedRows, round_rows
from tests.passes.numerics.gptq.test_rows import correlated, weight
from tests.support import oracle

EVERY = sorted(FORMATS)
Float64 = npt.NDArray[np.float64]


def loss(found: RoundedRows, w: npt.NDArray[np.float32], hessian: Float64) -> float:
    """tr(E H Eᵀ)."""
    error = found.wide().astype(np.float64) - w
    return float(np.einsum("nk,kl,nl->", error, hessian, error))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("rows", [1, 3, 37])
def test_plain_rows_are_those_of_an_exhaustive_search(name: str, rows: int) -> None:
    form, w = FORMATS[name], weight(rows, 128)
    w[0, :64] = 0.0
    found = round_rows(w, form)
    values, scales = oracle.searched(w, form.levels, form.scales, form.group_size)
    np.testing.assert_array_equal(found.scales, scales)
    np.testing.assert_array_equal(found.values, values)


def by_definition(
    w: npt.NDArray[np.float32], hessian: Float64, form: Format
) -> npt.NDArray[np.float32]:
    """Optimal brain quantization in float64, with the scales that GPTQ found."""
    factor = factor_of(hessian, form.group_size)
    size = form.group_size or w.shape[1]
    found = round_rows(w, form, factor=lambda: factor)
    scales = np.repeat(found.scales, size, axis=1).T[factor.order].astype(np.float64)
    left = hessian[np.ix_(factor.order, factor.order)].copy()
    left[np.diag_indices_from(left)] += DAMPING * left.diagonal().mean()
    x = w.T[factor.order].astype(np.float64)
    values = np.empty(x.shape, np.float32)
    for j in range(len(x)):
        ratio = x[j] / np.where(scales[j] == 0, 1, scales[j])
        values[j] = form.nearest(ratio.astype(np.float32))
        inverse = np.linalg.inv(left[j:, j:])
        x[j:] -= np.outer(inverse[:, 0] / inverse[0, 0], x[j] - values[j] * scales[j])
    in_order = np.empty_like(values)
    in_order[factor.order] = values
    return in_order.T


@pytest.mark.parametrize("name", EVERY)
def test_gptq_is_optimal_brain_quantization(name: str) -> None:
    form, w, hessian = FORMATS[name], weight(5, 64), correlated(64)
    found = round_rows(w, form, factor=lambda: factor_of(hessian, form.group_size))
    same = found.values == by_definition(w, hessian, form)
    assert same.mean() > 0.99  # float32 and float64 differ where a value is nearly halfway


@pytest.mark.parametrize("name", EVERY)
def test_gptq_loses_less_and_rows_do_not_depend_on_others(name: str) -> None:
    form, w, hessian = FORMATS[name], weight(300, 128), correlated(128)
    factor = factor_of(hessian, form.group_size)
    found = round_rows(w, form, factor=lambda: factor)
    assert loss(found, w, hessian) < 0.8 * loss(round_rows(w, form), w, hessian)
    part = round_rows(w[255:258], form, factor=lambda: factor)
    np.testing.assert_array_equal(part.values, found.values[255:258])
    np.testing.assert_array_equal(part.scales, found.scales[255:258])


def test_where_inputs_are_independent_gptq_is_plain_rounding() -> None:
    for form in FORMATS.values():
        w = weight(4, 64)
        found = round_rows(w, form, factor=lambda f=form: factor_of(np.eye(64), f.group_size))
        np.testing.assert_array_equal(found.values, round_rows(w, form).values)


def test_searched_block_scales_lose_less_than_the_plain_one() -> None:
    w = weight(64, 256)
    whole = float(np.abs(w).max()) / (6 * 448)
    found = round_rows(w, NVFP4, whole=whole).wide(whole)
    plain = oracle.nvfp4(w, whole)
    assert np.square(found - w).sum() < 0.85 * np.square(plain - w).sum()


def test_nan_is_refused_by_name() -> None:
    w = weight(2, 64)
    w[1, 3] = np.nan
    with pytest.raises(InputError, match="wa: the weight holds infinities or NaN"):
        round_rows(w, NVFP4, name="wa")
