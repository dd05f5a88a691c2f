"""`slices-to-split` on text."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.slices_to_split import SlicesToSplit
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import expected, f32

CONSTANTS = {
    name: np.array([number])
    for name, number in {"zero": 0, "four": 4, "six": 6, "eight": 8, "axis": 2, "one": 1}.items()
}


def model(*ranges: str, axis: str = "axis") -> ir.Model:
    names = [f"p{i}" for i in range(len(ranges))]
    slices = " ".join(
        f"{name} = Slice (x, {bounds}, {axis})" for name, bounds in zip(names, ranges, strict=True)
    )
    nodes = f"{slices} y = Concat <axis: int = -1> ({', '.join(reversed(names))})"
    return exported("(float[B,S,8] x) => (float[B,S,N] y)", nodes, {}, CONSTANTS)


def test_slices_in_any_order_that_cover_the_axis() -> None:
    ranges = ("four, six", "zero, four", "six, eight")
    found = model(*ranges)
    text, report = after(found, SlicesToSplit())
    assert text == expected("""
        t0, t1, t2 = Split <axis = -1> (x, x.sizes)
        y = Concat <axis = -1> (t2, t0, t1)
        """)
    sizes = found.graph.initializers["x.sizes"].const_value
    assert sizes is not None
    assert sizes.numpy().tolist() == [4, 2, 2]
    assert report.details == {"split": 1}
    assert unchanged(model(*ranges), {"x": f32(2, 3, 8)}, SlicesToSplit()) == 0.0


@pytest.mark.parametrize(
    "ranges",
    [
        ("zero, four", "six, eight"),
        ("zero, six", "four, eight"),
        ("zero, four", "four, six"),
        ("zero, eight",),
    ],
)
def test_gaps_overlaps_and_single_slices_stay(ranges: tuple[str, ...]) -> None:
    assert SlicesToSplit().run(model(*ranges)).count == 0


def test_another_axis_stays() -> None:
    assert SlicesToSplit().run(model("zero, four", "four, eight", axis="one")).count == 0


def test_two_halves_are_enough() -> None:
    assert SlicesToSplit().run(model("zero, four", "four, eight")).details == {"split": 1}
