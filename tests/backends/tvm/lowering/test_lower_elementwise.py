"""Lowering of comparisons, choices and bounds: calls, shapes and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.lowering.lower_elementwise import HANDLERS
from optc.backends.tvm.lowering.walk import Lowering
from optc.backends.tvm.program import Call, Tensor
from optc.errors import UnsupportedError
from tests.support.ir_text import model_of

SIGNATURE = "g (float[T,8] x, float[T,1] f, int64[T] p) => (float[T,8] y)"
CONSTANTS = {"zero": np.float32(0.0), "one": np.float32(1.0), "low": np.float32(-2.0)}


def lowered(nodes: str) -> tuple[list[Call], Tensor]:
    model = model_of(SIGNATURE, nodes, {k: v for k, v in CONSTANTS.items() if k in nodes})
    lowering = Lowering(1, [])
    shapes = {"x": ("float32", ("T", 8)), "f": ("float32", ("T", 1)), "p": ("int64", ("T",))}
    for value in model.graph.inputs:
        dtype, shape = shapes[str(value.name)]
        lowering.tensors[value] = Tensor(str(value.name), dtype, shape)
    lowering.run(model.graph, HANDLERS)
    return lowering.calls, lowering.tensors[model.graph.outputs[0]]


def test_a_comparison_gives_truth_values_that_a_choice_reads() -> None:
    calls, y = lowered("c = Greater (x, zero) m = Mul (x, x) y = Where (c, m, low)")
    assert [call.kernel for call in calls] == ["relax.greater", "elementwise", "relax.where"]
    assert calls[0].config == {"right": 0.0}
    assert calls[0].outputs[0].dtype == "bool"
    assert calls[2].config == {"right": -2.0}
    assert calls[2].inputs == (calls[0].outputs[0].name, calls[1].outputs[0].name)
    assert (y.dtype, y.shape) == ("float32", ("T", 8))


def test_both_sides_of_a_choice_may_be_numbers() -> None:
    calls, y = lowered("d = LessOrEqual (x, f) c = Not (d) y = Where (c, one, zero)")
    assert [call.kernel for call in calls][:2] == ["relax.less_equal", "relax.logical_not"]
    assert calls[0].outputs[0].shape == ("T", 8)
    assert calls[2].config == {"left": 1.0, "right": 0.0}
    assert y.shape == ("T", 8)


@pytest.mark.parametrize(
    ("clip", "kernels"),
    [
        ("Clip (x, low, one)", ["relax.maximum", "relax.minimum"]),
        ("Clip (x, low)", ["relax.maximum"]),
        ("Clip (x, , one)", ["relax.minimum"]),
    ],
)
def test_bounds(clip: str, kernels: list[str]) -> None:
    calls, _ = lowered(f"y = {clip}")
    assert [call.kernel for call in calls] == kernels


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        ("Floor", "floor"),
        ("Log", "log"),
        ("Softplus", "softplus"),
        ("Reciprocal", "divide"),
    ],
)
def test_functions(op: str, kernel: str) -> None:
    calls, y = lowered(f"y = {op} (x)")
    assert [call.kernel for call in calls] == [f"relax.{kernel}"]
    assert y.shape == ("T", 8)


def test_a_factor_a_token_is_broadcast() -> None:
    calls, y = lowered("y = Max (x, f)")
    assert calls[0].kernel == "relax.maximum"
    assert y.shape == ("T", 8)


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ("y = Clip (x, f)", "Clip needs constant bounds, on float32"),
        ("c = Greater (x, f) y = Where (c, p, one)", "a choice between values of int64"),
    ],
)
def test_what_cannot_be_lowered_is_named(nodes: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        lowered(nodes)
