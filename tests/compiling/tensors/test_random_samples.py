"""Random inputs have sizes that a model takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from optc.compiling.tensors.random_samples import Sizes, sample_of, sizes_taken, smallest
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


def found(of: TensorsInterface, takes: Callable[[Tensors], bool]) -> list[Tensors]:
    taken = sizes_taken(of, lambda sizes: takes(sample_of(of, sizes)))
    return [sample_of(of, sizes) for sizes in taken]


def shapes(samples: list[Tensors]) -> list[tuple[int, ...]]:
    return [sample["x"].shape for sample in samples]


def test_a_model_that_takes_all_gets_the_smallest() -> None:
    samples = found(IMAGE, lambda one: True)
    assert shapes(samples) == [(2, 3, 2, 2), (5, 3, 5, 5), (3, 3, 3, 3)]
    again = found(IMAGE, lambda one: True)
    assert all((a["x"] == b["x"]).all() for a, b in zip(samples, again, strict=True))


@pytest.mark.parametrize(
    ("least", "expected"),
    [(400, [(2, 640), (5, 1600), (3, 960)]), (10_000, [(2, 16384), (5, 40960), (3, 24576)])],
)
def test_a_window_is_reached(least: int, expected: list[tuple[int, int]]) -> None:
    samples = found(SOUND, lambda one: one["x"].shape[1] >= least)
    assert shapes(samples) == expected
    assert samples[0]["l"].tolist() == [expected[0][1]] * 2, "whole rows"


def test_strides_divide_sizes() -> None:
    samples = found(IMAGE, lambda one: all(n % 32 == 0 for n in one["x"].shape[2:]))
    assert shapes(samples) == [(2, 3, 64, 64), (5, 3, 160, 160), (3, 3, 96, 96)]
    samples = found(IMAGE, lambda one: all(n % 64 == 0 for n in one["x"].shape[2:]))
    assert shapes(samples) == [(2, 3, 64, 64), (5, 3, 128, 128), (3, 3, 128, 128)]


def test_one_row_and_one_size_are_tried() -> None:
    samples = found(IMAGE, lambda one: one["x"].shape == (1, 3, 224, 224))
    assert shapes(samples) == [(1, 3, 224, 224)]


def test_flags_that_are_no_lengths_are_zero_and_one() -> None:
    samples = found(SOUND, lambda one: one["l"].max() < 2)
    assert shapes(samples) == [(2, 2), (5, 5), (3, 3)]


def test_fixed_sizes_have_lengths_too() -> None:
    fixed = interface(TensorSpec("x", "float32", (1, 7)), TensorSpec("l", "int8", (1,)))
    (sample,) = found(fixed, (lambda one: True))
    assert sample["l"].tolist() == [7]
    long = interface(TensorSpec("x", "float32", (1, 700)), TensorSpec("l", "int8", ()))
    assert found(long, (lambda one: True))[0]["l"] == 127


def test_what_is_taken_nowhere_gets_the_smallest_for_the_gates_to_say_so() -> None:
    assert found(IMAGE, lambda one: False) == []
    assert smallest(IMAGE) == Sizes(2, 2, lengths=False)


def test_no_sample_takes_the_memory_of_the_machine() -> None:
    most: list[int] = []

    def takes(sample: Tensors) -> bool:
        most.append(sample["x"].size)
        return False

    assert found(IMAGE, takes) == []
    assert 1 << 16 < max(most) <= 1 << 24
