"""Inputs are checked before an engine sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from optc.errors import RequestError
from optc.runtime.executable.tensors_interface import DimRange, TensorsInterface, TensorSpec
from optc.runtime.tensors.inputs import _array, checked_inputs

INTERFACE = TensorsInterface(
    (TensorSpec("ids", "int64", ("batch", "tokens")), TensorSpec("x", "float32", ("batch", 3))),
    (TensorSpec("y", "float32", ("batch",)),),
    {"batch": DimRange(1, 4), "tokens": DimRange(2, 8)},
)


def given(**changes: Any) -> dict[str, Any]:
    return {"ids": np.zeros((2, 5), np.int64), "x": np.zeros((2, 3), np.float32), **changes}


def test_arrays_of_the_right_type_are_not_copied() -> None:
    arrays = given()
    found = checked_inputs(arrays, INTERFACE, "inputs")
    assert found["x"] is arrays["x"]
    tensor = torch.ones(2, 3)
    shared = checked_inputs(given(x=tensor), INTERFACE, "inputs")["x"]
    tensor[0, 0] = 7
    assert shared[0, 0] == 7


def test_types_that_fit_are_converted() -> None:
    found = checked_inputs(given(ids=np.zeros((2, 5), np.int32), x=[[1.0] * 3] * 2), INTERFACE, "i")
    assert (found["ids"].dtype, found["x"].dtype) == (np.int64, np.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"z": 1}, "has no input 'z'.*ids, x"),
        ({"images": 1}, "has no input 'images'.*ids, x; a compile with --images"),
        ({"x": np.zeros((2, 3), np.complex64)}, "input x: has the type complex64.*float32"),
        ({"ids": np.zeros((2, 5))}, "input ids: has the type float64.*int64"),
        ({"x": np.zeros(3, np.float32)}, r"has 1 axes, and is to have 2.*batch, 3"),
        ({"x": np.zeros((2, 4), np.float32)}, "axis 1 has 4 elements, not 3"),
        ({"ids": np.zeros((2, 9), np.int64)}, "tokens, has 9 elements.*2 to 8"),
        ({"ids": np.zeros((2, 1), np.int64)}, "tokens, has 1 elements"),
        ({"x": np.zeros((3, 3), np.float32)}, "batch, has 3 elements, and 2 in another"),
        ({"x": "text"}, "has the type"),
    ],
)
def test_others_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        checked_inputs(given(**changes), INTERFACE, "inputs")


def test_a_missing_input_is_named() -> None:
    arrays = given()
    del arrays["x"]
    with pytest.raises(RequestError, match="lacks the input 'x'"):
        checked_inputs(arrays, INTERFACE, "inputs")


class Odd:
    """It says that it is an array, and is none."""

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("it lies elsewhere")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.mark.parametrize(
    ("value", "said"), [(Odd(), "is no array: it lies elsewhere"), ([[1], [1, 2]], "is no array: ")]
)
def test_what_is_no_array(value: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        _array(value, "inputs: x")
    assert caught.value.where == "inputs: x"


def test_whole_numbers_that_a_type_does_not_hold_are_refused() -> None:
    small = TensorsInterface((TensorSpec("n", "int32", (2,)),), (TensorSpec("y", "int32", (2,)),))
    kept = checked_inputs({"n": np.array([-5, (1 << 31) - 1])}, small, "i")["n"]
    assert (str(kept.dtype), list(kept)) == ("int32", [-5, (1 << 31) - 1])
    with pytest.raises(RequestError, match="has values from 0 to 2147483648, and int32 holds"):
        checked_inputs({"n": np.array([0, 1 << 31])}, small, "i")


def test_what_numpy_has_no_type_for_says_how_to_give_it() -> None:
    with pytest.raises(RequestError) as refused:
        checked_inputs(given(x=torch.ones((2, 3), dtype=torch.bfloat16)), INTERFACE, "i")
    assert "float().numpy()" in refused.value.hint
