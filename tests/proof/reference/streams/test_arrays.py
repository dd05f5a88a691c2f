"""Room for values: memory up to the bound, then files that are used again."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np

from optc.proof.reference.streams.arrays import ValueArrays

FLOAT32 = np.dtype(np.float32)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_arrays_beyond_the_bound_lie_in_files_and_keep_what_is_written() -> None:
    arrays = ValueArrays(400)
    first, second = (arrays.empty((10, 10), FLOAT32) for _ in range(2))
    assert first.base is None  # its own memory
    assert second.base is not None
    first[:], second[:] = 1, 2
    third = arrays.empty((5, 20), np.dtype(ml_dtypes.bfloat16))
    third[:] = 3
    assert [float(one.astype(np.float32).sum()) for one in (first, second, third)] == [
        100,
        200,
        300,
    ]


def test_room_is_given_again_when_the_last_view_is_gone() -> None:
    arrays = ValueArrays(0)
    first = arrays.empty((64, 8), FLOAT32)
    place, view = address(first), first[3:]
    del first
    gc.collect()
    assert address(arrays.empty((64, 8), FLOAT32)) != place  # the view is still there
    del view
    gc.collect()
    assert address(arrays.empty((128, 8), np.dtype(ml_dtypes.bfloat16))) == place


def test_memory_is_given_again() -> None:
    arrays = ValueArrays(400)
    for _ in range(3):
        assert arrays.empty((10, 10), FLOAT32).base is None
        gc.collect()
