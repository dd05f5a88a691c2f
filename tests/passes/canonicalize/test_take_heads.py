"""`fold-heads` where a node takes some of the heads: columns of what was split."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.fold_heads import FoldHeads
from tests.passes.canonicalize.texts import after, evaluate, exported, unchanged
from tests.support.ir_text import f32

CONSTANTS: dict[str, Any] = {
    "split": np.array([0, 0, 4, 8]),
    "merged": np.array([0, 0, 16]),
    "one": np.array(1),
    "minus": np.array(-1),
    "first": np.array([1]),
    "end": np.array([3]),
    "heads": np.array([2]),
    "last": np.array([3]),
    "sizes": np.array([3, 1]),
    "step": np.array([2]),
    "factor": np.float32(0.5),
}
APART = "a = Reshape (x, split)"
#: Nodes behind `APART`, the result's width, and the columns that it must be.
CASES = {
    "one head": ("y = Gather <axis: int = 2> (a, one)", "B,S,8", slice(8, 16)),
    "the last head": ("y = Gather <axis: int = -2> (a, minus)", "B,S,8", slice(24, 32)),
    "a slice, squeezed": (
        "s = Slice (a, last, split_end, heads) y = Squeeze (s, heads)",
        "B,S,8",
        slice(24, 32),
    ),
    "several heads": (
        "s = Slice (a, first, end, heads) y = Reshape (s, merged)",
        "B,S,16",
        slice(8, 24),
    ),
    "a split, squeezed": (
        "s, t = Split <axis: int = 2> (a, sizes) y = Squeeze (t, heads)",
        "B,S,8",
        slice(24, 32),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_heads_are_taken_as_columns(case: str) -> None:
    nodes, shape, columns = CASES[case]
    constants = {**CONSTANTS, "split_end": np.array([2**31])}

    def made() -> ir.Model:
        graph = f"(float[B,S,32] x) => (float[{shape}] y)"
        return exported(graph, f"{APART} {nodes}", {}, constants)

    text, report = after(made(), FoldHeads())
    assert "Reshape" not in text
    assert report.count >= 1
    x = f32(2, 3, 32)
    assert unchanged(made(), {"x": x}, FoldHeads()) == 0.0
    model = made()
    FoldHeads().run(model)
    np.testing.assert_array_equal(evaluate(model, {"x": x}), x[..., columns])


def test_values_that_are_split_alike_are_added_before_the_split() -> None:
    nodes = f"b = Reshape (z, split) {APART} c = Add (a, b) y = Gather <axis: int = 2> (c, one)"
    model = exported("(float[B,S,32] x, float[B,S,32] z) => (float[B,S,8] y)", nodes, {}, CONSTANTS)
    text, _ = after(model, FoldHeads())
    assert text.splitlines()[0].strip() == "t0 = Add (x, z)"
    assert "Reshape" not in text


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Slice (a, first, end, heads, step)",  # every second head
        "s = Slice (a, first, end, last) y = Gather <axis: int = 2> (s, one)",  # of each head
        "y = Gather <axis: int = 2> (a, first)",  # keeps its axis
    ],
)
def test_anything_else_stays(nodes: str) -> None:
    model = exported("(float[B,S,32] x) => (float[Q,R,T,U] y)", f"{APART} {nodes}", {}, CONSTANTS)
    _, report = after(model, FoldHeads())
    assert report.count == 0
