"""The inputs that a model is calibrated by, and those that it is judged by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.runtime.executable.tensors_interface import TensorsInterface

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
#: With fewer rows in all, the same ones calibrate and judge.
_LEAST_ROWS = 64
#: Most rows that calibrate, and rows of a call while it is done and judged.
_MOST_ROWS, _CALIBRATED, _JUDGED = 512, 16, 32


@dataclass(frozen=True)
class Split:
    """Samples to calibrate by, and samples to judge by.

    Attributes:
        calibration: Calls of a few rows.
        judged: Calls.
        apart: No row is in both.
    """

    calibration: tuple[Tensors, ...]
    judged: tuple[Tensors, ...]
    apart: bool


def split_samples(
    samples: Sequence[Tensors], calibration: Sequence[Tensors], interface: TensorsInterface
) -> Split:
    """Keep rows to calibrate by apart from those that judge.

    Args:
        samples: Inputs, some rows each.
        calibration: The user's for calibrating; none are a fourth of the rows of ``samples``. They
            are drawn at random, by a seed, and so are 512 of more rows: of samples that come by
            class, or by turns, neither the first nor every fourth ones are of all kinds.
        interface: Rows are apart where the first axis of every input is one dynamic dimension.
    """
    dim = rows_dim(interface)
    if dim is None:
        return Split(tuple(calibration or samples), tuple(samples), bool(calibration))
    most = min(_JUDGED, interface.symbols[dim].most)
    few = min(_CALIBRATED, interface.symbols[dim].most)
    if calibration:
        given = list(_rows(calibration))
        chosen = [given[index] for index in sorted(_drawn(len(given), _MOST_ROWS))]
        return Split(_calls(chosen, few), tuple(samples), True)
    rows = list(_rows(samples))
    if len(rows) < _LEAST_ROWS or interface.symbols[dim].least > 1:
        return Split(tuple(samples), tuple(samples), False)
    drawn = _drawn(len(rows), min(len(rows) // 4, _MOST_ROWS))
    chosen = [row for index, row in enumerate(rows) if index in drawn]
    rest = [row for index, row in enumerate(rows) if index not in drawn]
    return Split(_calls(chosen, few), _calls(rest, most), True)


def rows_dim(interface: TensorsInterface) -> str | None:
    """The dynamic dimension that is the first axis of every input; None if there is none."""
    dims = {one.dims[0] if one.dims else 0 for one in interface.inputs}
    (only, *others) = dims
    return only if not others and isinstance(only, str) else None


def _drawn(rows: int, count: int) -> set[int]:
    """Places of ``count`` of so many rows, or of all, drawn by a seed."""
    drawn = np.random.default_rng(0).choice(rows, min(rows, count), replace=False)
    return set(drawn.tolist())


def _rows(samples: Sequence[Tensors]) -> Iterator[Tensors]:
    for sample in samples:
        count = len(next(iter(sample.values())))
        for index in range(count):
            yield {name: array[index : index + 1] for name, array in sample.items()}


def _calls(rows: Sequence[Tensors], size: int) -> tuple[Tensors, ...]:
    """Neighbours of one shape together."""
    found: list[list[Tensors]] = []
    for row in rows:
        if found and len(found[-1]) < size and _shapes(found[-1][0]) == _shapes(row):
            found[-1].append(row)
        else:
            found.append([row])
    return tuple(
        {name: np.concatenate([row[name] for row in some]) for name in some[0]} for some in found
    )


def _shapes(sample: Tensors) -> list[tuple[int, ...]]:
    return [array.shape for array in sample.values()]
