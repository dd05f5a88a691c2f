"""Rows of experts below each other, from every way to stack them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.expert_rows import expert_rows, expert_vector, scale_experts
from optc.ir.stacked_weights import StackedWeight
from optc.ir.weights import LazyWeight
from tests.support.ir_text import Array, f32

E, N, K = 3, 6, 5


def stacked(array: Array) -> StackedWeight:
    def read(box: tuple[tuple[int, int], ...]) -> Array:
        return array[tuple(slice(*one) for one in box)]

    return StackedWeight(read, array.shape, ir.DataType.FLOAT, "w")


def whole(array: Array) -> LazyWeight:
    return LazyWeight(lambda a, b: array[a:b], array.shape, ir.DataType.FLOAT, "w")


@pytest.mark.parametrize("weight", [stacked, whole])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rows(weight: type[LazyWeight], transposed: bool, interleaved: bool) -> None:
    array = f32(E, N, K)
    want = np.concatenate([array[:, ::2], array[:, 1::2]], axis=1) if interleaved else array
    given = np.ascontiguousarray(array.swapaxes(1, 2)) if transposed else array
    rows = expert_rows(weight(given), transposed=transposed, interleaved=interleaved)
    assert (rows.rows_shape, rows.transposed, rows.name) == ((E * N, K), True, "w")
    flat = want.reshape(E * N, K)
    np.testing.assert_array_equal(rows.numpy(), flat.T)
    for start, stop in ((0, 1), (2, 9), (4, 5), (5, 13), (17, 18)):
        np.testing.assert_array_equal(rows.read_rows(start, stop), flat[start:stop])


@pytest.mark.parametrize("interleaved", [False, True])
def test_vector(interleaved: bool) -> None:
    array = f32(E, N)
    want = np.concatenate([array[:, ::2], array[:, 1::2]], axis=1) if interleaved else array
    vector = expert_vector(whole(array), interleaved=interleaved)
    np.testing.assert_array_equal(vector.numpy(), want.ravel())
    for start, stop in ((0, 1), (2, 9), (5, 13), (17, 18)):
        np.testing.assert_array_equal(vector.read_rows(start, stop), want.ravel()[start:stop])


@pytest.mark.parametrize("width", [(), (K,)])
def test_rows_times_factors(width: tuple[int, ...]) -> None:
    rows, factors = f32(E * N, *width), f32(E)
    scaled = scale_experts(whole(rows), whole(factors))
    want = (rows.reshape(E, N, -1) * factors[:, None, None]).reshape(rows.shape)
    np.testing.assert_array_equal(scaled.numpy(), want)
    np.testing.assert_array_equal(scaled.read_rows(4, 9), want[4:9])
