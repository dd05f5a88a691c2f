"""Marked tensors say where their numbers are, whatever part of them is read."""

from __future__ import annotations

import numpy as np
import pytest

from optc.compiling.export.origins.marks import Marks, Mode

SHAPES = {"a": (3, 4), "b": (5,), "c": (2, 3, 4), "d": (7,)}


@pytest.mark.parametrize("name", SHAPES)
def test_numbers(name: str) -> None:
    marks = Marks(SHAPES)
    shape = SHAPES[name]
    columns = shape[-1] if len(shape) > 1 else 1
    flat = np.arange(np.prod(shape))
    wanted = {
        Mode.ZERO: np.zeros(shape),
        Mode.ONE: np.ones(shape),
        Mode.PARAMETER: np.full(shape, list(SHAPES).index(name)),
        Mode.ROW: (flat // columns).reshape(shape),
        Mode.COLUMN: (flat % columns).reshape(shape),
    }
    box = tuple((1, size) for size in shape)
    for marks.mode, values in wanted.items():
        tensor = marks.tensors[name]
        np.testing.assert_array_equal(tensor.read_rows(0, shape[0]), values)
        inner = values[tuple(slice(*one) for one in box)]
        np.testing.assert_array_equal(tensor.read_box(box), inner)


@pytest.mark.parametrize("name", SHAPES)
def test_noise_is_the_same_whatever_part_is_read(name: str) -> None:
    tensor = Marks(SHAPES).tensors[name]
    whole = tensor.read_rows(0, SHAPES[name][0])
    assert whole.dtype == np.float32
    assert len(np.unique(whole)) == whole.size
    assert np.isfinite(whole).all()
    box = tuple((1, size) for size in SHAPES[name])
    np.testing.assert_array_equal(tensor.read_box(box), whole[tuple(slice(*one) for one in box)])


def test_numbers_of_vectors_tell_their_places() -> None:
    marks = Marks(SHAPES)
    both = np.concatenate([marks.tensors[n].read_rows(0, SHAPES[n][0]) for n in ("d", "b")])
    found = marks.places(both)
    assert found is not None
    np.testing.assert_array_equal(found[0], [3] * 7 + [1] * 5)
    np.testing.assert_array_equal(found[1], [*range(7), *range(5)])


@pytest.mark.parametrize("change", [lambda x: x + 1, lambda x: x * 0.75, lambda x: 0 * x + 0.5])
def test_other_numbers_are_of_no_vector(change: object) -> None:
    marks = Marks(SHAPES)
    values = marks.tensors["d"].read_rows(0, 7)
    changed = change(values)  # type: ignore[operator]
    found = marks.places(changed.astype(np.float32))
    same = found is not None and np.array_equal(found[1], np.arange(7))
    assert not same
