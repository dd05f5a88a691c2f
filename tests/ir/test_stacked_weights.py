"""Experts' matrices are read by rows of any of them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.stacked_weights import Box, StackedWeight, stacked
from optc.ir.weights import LazyWeight

MATRICES = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)


def weight(reads: list[Box] | None = None) -> StackedWeight:
    def read(box: Box) -> np.ndarray:
        if reads is not None:
            reads.append(box)
        return MATRICES[tuple(slice(*one) for one in box)]

    return StackedWeight(read, (3, 4, 5), ir.DataType.FLOAT, "w")


def test_it_is_a_weight_of_three_axes() -> None:
    one = weight()
    assert tuple(one.shape) == one.rows_shape == (3, 4, 5)
    np.testing.assert_array_equal(one.numpy(), MATRICES)
    np.testing.assert_array_equal(one.read_rows(1, 3), MATRICES[1:3])
    np.testing.assert_array_equal(one.read_expert(2, 1, 3), MATRICES[2, 1:3])


@pytest.mark.parametrize(("start", "stop"), [(0, 12), (0, 1), (3, 5), (4, 8), (2, 11), (11, 12)])
def test_folded_rows_are_read_of_the_experts_that_have_them(start: int, stop: int) -> None:
    reads: list[Box] = []
    folded = weight(reads).fold()
    assert folded.rows_shape == (12, 5)
    found = folded.read_rows(start, stop)
    np.testing.assert_array_equal(found, MATRICES.reshape(12, 5)[start:stop])
    assert sum(high - low for _, (low, high), _ in reads) == stop - start


def test_swapped_matrices_are_transposed() -> None:
    swapped = weight().swap()
    assert swapped.rows_shape == (3, 5, 4)
    np.testing.assert_array_equal(swapped.numpy(), MATRICES.swapaxes(1, 2))
    np.testing.assert_array_equal(
        swapped.fold().read_rows(4, 7), MATRICES.swapaxes(1, 2).reshape(15, 4)[4:7]
    )


@pytest.mark.parametrize("box", [((0, 3), (0, 4), (0, 5)), ((1, 3), (1, 3), (2, 5))])
def test_rows_below_each_other_are_read_as_matrices(box: Box) -> None:
    one = stacked(LazyWeight(lambda a, b: ROWS[a:b], (12, 5), ir.DataType.FLOAT, "w"), 3)
    np.testing.assert_array_equal(one.read_box(box), MATRICES[tuple(slice(*one) for one in box)])
    np.testing.assert_array_equal(one.swap().numpy(), MATRICES.swapaxes(1, 2))
    np.testing.assert_array_equal(one.fold().read_rows(3, 9), ROWS[3:9])


ROWS = MATRICES.reshape(12, 5)
