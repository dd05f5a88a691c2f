"""Rows that calibrate are kept apart from rows that judge."""

from __future__ import annotations

import numpy as np
import pytest

from optc.compiling.tensors.calibration import split_samples
from optc.runtime.executable.tensors_interface import DimRange, TensorsInterface, TensorSpec


def interface(first: str | int = "batch", most: int = 1000) -> TensorsInterface:
    spec = (TensorSpec("x", "float32", (first, 2)),)
    symbols = {first: DimRange(1, most)} if isinstance(first, str) else {}
    return TensorsInterface(spec, spec, symbols)


def rows(count: int, start: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.arange(start * 2, (start + count) * 2, dtype=np.float32).reshape(-1, 2)}


def seen(samples: tuple[object, ...]) -> list[float]:
    return [float(row[0]) for sample in samples for row in sample["x"]]  # type: ignore[index]


def test_a_fourth_of_the_rows_calibrates_and_all_others_judge() -> None:
    split = split_samples([rows(50), rows(50, 50)], [], interface())
    assert split.apart
    assert len(seen(split.calibration)) == 25
    both = [*seen(split.calibration), *seen(split.judged)]
    assert sorted(both) == [2.0 * i for i in range(100)]
    assert seen(split.judged) == sorted(seen(split.judged))
    assert max(len(sample["x"]) for sample in split.judged) == 32
    again = split_samples([rows(100)], [], interface())
    assert seen(again.calibration) == seen(split.calibration)


@pytest.mark.parametrize("given", [False, True], ids=["of the samples", "of the user's"])
@pytest.mark.parametrize("period", [2, 4, 8])
def test_rows_that_come_by_class_or_in_turns_calibrate_of_all_kinds(
    given: bool, period: int
) -> None:
    count = 4096
    source = [rows(count)]
    split = split_samples([rows(100)], source, interface()) if given else None
    split = split or split_samples(source, [], interface())
    places = np.array(seen(split.calibration)) / 2
    assert len(places) == 512
    for kinds in (places % period, places // (count / period)):  # in turns, and by class
        shares = np.bincount(kinds.astype(int), minlength=period) / len(places)
        assert shares.min() > 0.6 / period


@pytest.mark.parametrize("most", [3, 1000])
def test_calls_are_as_large_as_the_model_takes(most: int) -> None:
    split = split_samples([rows(2, start) for start in range(0, 4000, 2)], [], interface(most=most))
    assert len(seen(split.calibration)) == 512
    assert max(len(one["x"]) for one in split.calibration) == min(most, 16)


def test_few_rows_or_a_fixed_batch_do_both() -> None:
    few = [rows(20)]
    split = split_samples(few, [], interface())
    assert not split.apart
    assert seen(split.calibration) == seen(split.judged)
    fixed = split_samples([rows(2)] * 50, [], interface(2))
    assert len(fixed.judged) == len(fixed.calibration) == 50


def test_what_the_user_gives_calibrates() -> None:
    split = split_samples([rows(100)], [rows(600, 1000)], interface())
    assert split.apart
    found = seen(split.calibration)
    assert len(set(found)) == 512
    assert set(found) <= {2000.0 + 2 * i for i in range(600)}
    assert seen(split.judged) == [2.0 * i for i in range(100)]
