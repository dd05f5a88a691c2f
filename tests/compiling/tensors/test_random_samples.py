"""Random inputs have sizes that a model takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from optc.compiling.tensors.random_samples import random_samples
from optc.errors import EngineError
from optc.runtime.executable.tensors_interface import DimRange, TensorsInterface, TensorSpec

Tensors = Mapping[str, Any]
ROWS, MANY = DimRange(1, 64), DimRange(1, 1 << 20)


def interface(*inputs: TensorSpec, **symbols: DimRange) -> TensorsInterface:
    first = inputs[0].dims[0]
    outputs = (TensorSpec("y", "float32", (first,)),)
    return TensorsInterface(tuple(inputs), outputs, symbols)


SOUND = interface(
    TensorSpec("x", "float32", ("n", "t")), TensorSpec("l", "int64", ("n",)), n=ROWS, t=MANY
)
IMAGE = interface(TensorSpec("x", "float32", ("n", 3, "h", "w")), n=ROWS, h=MANY, w=MANY)


def taking(condition: Callable[[Tensors], bool]) -> Callable[[Tensors], None]:
    def run(sample: Tensors) -> None:
        if not condition(sample):
            raise EngineError("no")

    return run


def shapes(found: tuple[Tensors, ...]) -> list[tuple[int, ...]]:
    return [sample["x"].shape for sample in found]


def test_a_model_that_takes_all_gets_the_smallest() -> None:
    found = random_samples(IMAGE, taking(lambda one: True))
    assert shapes(found) == [(2, 3, 2, 2), (5, 3, 5, 5), (3, 3, 3, 3)]
    again = random_samples(IMAGE, taking(lambda one: True))
    assert all((a["x"] == b["x"]).all() for a, b in zip(found, again, strict=True))


@pytest.mark.parametrize(
    ("least", "expected"),
    [(400, [(2, 640), (5, 1600), (3, 960)]), (10_000, [(2, 16384), (5, 40960), (3, 24576)])],
)
def test_a_window_is_reached(least: int, expected: list[tuple[int, int]]) -> None:
    found = random_samples(SOUND, taking(lambda one: one["x"].shape[1] >= least))
    assert shapes(found) == expected
    assert found[0]["l"].tolist() == [expected[0][1]] * 2, "whole rows"


def test_strides_divide_sizes() -> None:
    found = random_samples(IMAGE, taking(lambda one: all(n % 32 == 0 for n in one["x"].shape[2:])))
    assert shapes(found) == [(2, 3, 64, 64), (5, 3, 160, 160), (3, 3, 96, 96)]
    found = random_samples(IMAGE, taking(lambda one: all(n % 64 == 0 for n in one["x"].shape[2:])))
    assert shapes(found) == [(2, 3, 64, 64), (5, 3, 128, 128), (3, 3, 128, 128)]


def test_one_row_and_one_size_are_tried() -> None:
    found = random_samples(IMAGE, taking(lambda one: one["x"].shape == (1, 3, 224, 224)))
    assert shapes(found) == [(1, 3, 224, 224)]


def test_flags_that_are_no_lengths_are_zero_and_one() -> None:
    found = random_samples(SOUND, taking(lambda one: one["l"].max() < 2))
    assert shapes(found) == [(2, 2), (5, 5), (3, 3)]


def test_fixed_sizes_have_lengths_too() -> None:
    fixed = interface(TensorSpec("x", "float32", (1, 7)), TensorSpec("l", "int8", (1,)))
    (found,) = random_samples(fixed, taking(lambda one: True))
    assert found["l"].tolist() == [7]
    long = interface(TensorSpec("x", "float32", (1, 700)), TensorSpec("l", "int8", ()))
    assert random_samples(long, taking(lambda one: True))[0]["l"] == 127


def test_what_is_taken_nowhere_gets_the_smallest_for_the_gates_to_say_so() -> None:
    assert shapes(random_samples(IMAGE, taking(lambda one: False))) == [(2, 3, 2, 2)]


def test_no_sample_takes_the_memory_of_the_machine() -> None:
    most: list[int] = []

    def run(sample: Tensors) -> None:
        most.append(sample["x"].size)
        raise EngineError("no")

    random_samples(IMAGE, run)
    assert 1 << 16 < max(most) <= 1 << 24
