"""Changes of weights are found by the values read: order, transposition, sums, factors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from optc.compiling.export.origins.marks import Marks, Mode
from optc.compiling.export.origins.origin import Kind, depends, origin_of
from optc.ir.stacked_weights import StackedWeight
from optc.ir.weights import LazyWeight, concatenate_rows, permute_rows, rows_from, rows_of_columns

SHAPES = {"a": (6, 4), "b": (3, 4), "bias": (5,), "stack": (2, 3, 4), "biases": (2, 3)}
FLOAT = ir.DataType.FLOAT


@pytest.fixture
def marks() -> Marks:
    return Marks(SHAPES)


def lazy(marks: Marks, name: str) -> LazyWeight:
    tensor = marks.tensors[name]
    if len(tensor.shape) == 3:
        return StackedWeight(tensor.read_box, tensor.shape, FLOAT, name)  # type: ignore[arg-type]
    return LazyWeight(tensor.read_rows, tensor.shape, FLOAT, name)


def test_rows(marks: Marks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optc.ir.weights.TILE_ELEMENTS", 8)
    order = np.array([5, 0, 3, 3])
    joined = concatenate_rows([permute_rows(lazy(marks, "a"), order), lazy(marks, "b")], "x")
    found = origin_of(joined, marks)
    assert found is not None
    assert (found.shape, found.kind, found.offset, found.slope) == ((7, 4), Kind.ROWS, 0, 1)
    np.testing.assert_array_equal(found.number, [0] * 4 + [1] * 3)
    np.testing.assert_array_equal(found.index, [5, 0, 3, 3, 0, 1, 2])
    assert marks.mode is Mode.NOISE


def test_columns(marks: Marks) -> None:
    found = origin_of(rows_of_columns(lazy(marks, "a")), marks)
    assert found is not None
    assert (found.shape, found.kind) == ((4, 6), Kind.COLUMNS)
    np.testing.assert_array_equal(found.index, range(4))
    np.testing.assert_array_equal(found.first, [0] * 4)


def test_experts(marks: Marks) -> None:
    stack = lazy(marks, "stack")
    assert isinstance(stack, StackedWeight)
    whole, swapped = origin_of(stack, marks), origin_of(stack.swap(), marks)
    assert whole is not None
    assert swapped is not None
    assert (whole.shape, whole.kind) == ((6, 4), Kind.ROWS)
    np.testing.assert_array_equal(whole.index, range(6))
    assert (swapped.shape, swapped.kind) == ((8, 3), Kind.COLUMNS)
    np.testing.assert_array_equal(swapped.first, [0] * 4 + [3] * 4)
    np.testing.assert_array_equal(swapped.index, [0, 1, 2, 3] * 2)


def test_sums_and_factors(marks: Marks) -> None:
    changed = lazy(marks, "bias").map_rows(lambda rows: 1 + rows * np.float32(0.125), FLOAT)
    found = origin_of(changed, marks)
    assert found is not None
    assert (found.kind, found.offset, found.slope) == (Kind.ELEMENTS, 1, 0.125)
    np.testing.assert_array_equal(found.index, range(5))


def test_vectors_that_became_constants(marks: Marks) -> None:
    order = np.array([4, 1])
    array = marks.tensors["bias"].read_rows(0, 5)[order]
    found = origin_of(ir.tensor(array), marks)
    assert found is not None
    assert (found.shape, found.kind) == ((2,), Kind.ELEMENTS)
    np.testing.assert_array_equal(found.index, order)
    assert origin_of(ir.tensor(array + np.float32(1)), marks) is None


def test_elements_of_a_matrix(marks: Marks) -> None:
    biases = marks.tensors["biases"]
    flat = LazyWeight(
        lambda start, stop: biases.read_rows(0, 2).reshape(-1)[start:stop], (6,), FLOAT, "x"
    )
    found = origin_of(flat, marks)
    assert found is not None
    np.testing.assert_array_equal(found.index, range(6))


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows**2,
        lambda rows: rows * np.arange(4, dtype=np.float32),
        lambda rows: rows[:, ::-1],
        lambda rows: rows[:, :1] + 0 * rows,
        lambda rows: rows[:, :2],
    ],
)
def test_what_is_more_than_that_has_no_origin(
    change: Callable[[np.ndarray], np.ndarray], marks: Marks
) -> None:
    width = change(np.zeros((1, 4), np.float32)).shape[1]
    weight = lazy(marks, "a").map_rows(change, FLOAT, width)
    assert origin_of(weight, marks) is None
    assert depends(weight, marks)


def test_what_is_of_no_parameter(marks: Marks) -> None:
    weight = LazyWeight(lambda a, b: np.ones((b - a, 2), np.float32), (3, 2), FLOAT, "x")
    assert origin_of(weight, marks) is None
    assert not depends(weight, marks)
    assert not depends(ir.tensor([1.0]), marks)
    assert origin_of(ir.tensor([1, 2]), marks) is None
    assert origin_of(rows_from(lazy(marks, "a"), 2), marks) is not None
