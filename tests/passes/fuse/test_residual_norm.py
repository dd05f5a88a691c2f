"""`fuse-residual-norm`: Add and norm become one operator."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.fuse.residual_norm import FuseResidualNorm
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.ragged import run

NORM = "RMSNormalization <axis: int = -1, epsilon: float = 0.5>"


@pytest.mark.parametrize("operands", ["x, h", "h, x"])
def test_chain_of_residuals(operands: str) -> None:
    nodes = f"""
        h = MatMul (x, w)
        a = Add ({operands})
        b = {NORM} (a, scale)
        c = MatMul (b, w)
        d = Add (c, a)
        e = {NORM} (d, scale)
        y = Add (e, d)"""
    model = model_of("g (float[S,8] x) => (float[S,8] y)", nodes, {"w": f32(8, 8), "scale": f32(8)})
    before = run(model, {"x": f32(3, 8)})
    assert FuseResidualNorm().run(model).details == {"add and norm": 2}
    assert nodes_text(model) == expected(
        """
        h = MatMul (x, w)
        a, b = optc.AddRMSNorm <epsilon = 0.5> (x, h, scale)
        c = MatMul (b, w)
        d, e = optc.AddRMSNorm <epsilon = 0.5> (a, c, scale)
        y = Add (e, d)"""
    )
    np.testing.assert_allclose(run(model, {"x": f32(3, 8)})[0], before[0], rtol=1e-5, atol=1e-5)


def test_the_sum_may_be_used_before_the_norm() -> None:
    nodes = f"h = Tanh (x)\na = Add (x, h)\nt = Tanh (a)\nb = {NORM} (a, scale)\ny = Add (t, b)"
    model = model_of("g (float[S,8] x) => (float[S,8] y)", nodes, {"scale": f32(8)})
    before = run(model, {"x": f32(3, 8)})
    assert FuseResidualNorm().run(model).count == 1
    np.testing.assert_allclose(run(model, {"x": f32(3, 8)})[0], before[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (f"a = Add (x, x)\ny = {NORM} (a, scale)", "the sum is not used beside the norm"),
        (
            f"a = Add (x, scale)\nb = {NORM} (a, scale)\ny = Add (a, b)",
            "the Add is a bias, not a residual",
        ),
        (
            "a = Add (x, x)\nb = RMSNormalization <axis: int = 0> (a, scale)\ny = Add (a, b)",
            "the norm is not over the last axis",
        ),
        (
            f"a = Add (x, x)\ns = Tanh (scale)\nb = {NORM} (a, s)\ny = Add (a, b)",
            "the norm's scale is computed",
        ),
        (f"y = {NORM} (x, scale)", "its operand is no sum"),
        (f"a = Tanh (x)\ny = {NORM} (a, scale)", "its operand is no sum"),
    ],
)
def test_near_misses_are_told(nodes: str, reason: str) -> None:
    model = model_of("g (float[S,8] x) => (float[S,8] y)", nodes, {"scale": f32(8)})
    before = nodes_text(model)
    report = FuseResidualNorm().run(model)
    assert (report.count, report.skipped) == (0, [f"RMSNormalization: {reason}"])
    assert nodes_text(model) == before


def test_the_nearest_miss_is_told_first() -> None:
    nodes = (
        f"t = {NORM} (x, scale)\na = Add (t, x)\nn = LayerNormalization (a, scale)\ny = Add (a, n)"
    )
    model = model_of("g (float[S,8] x) => (float[S,8] y)", nodes, {"scale": f32(8)})
    assert FuseResidualNorm().run(model).skipped == [
        "LayerNormalization: a LayerNormalization is not fused with its Add",
        "RMSNormalization: its operand is no sum",
    ]


def test_a_norm_without_an_epsilon_has_onnxs() -> None:
    nodes = "a = Add (x, x)\nb = RMSNormalization (a, scale)\ny = Add (a, b)"
    model = model_of("g (float[S,8] x) => (float[S,8] y)", nodes, {"scale": f32(8)})
    assert FuseResidualNorm().run(model).count == 1
    assert nodes_text(model) == expected(
        """
        a, b = optc.AddRMSNorm <epsilon = 1e-05> (x, x, scale)
        y = Add (a, b)"""
    )


def test_others_behind_what_is_left_are_fused() -> None:
    nodes = f"""
        t = {NORM} (x, scale)
        a = Add (t, x)
        b = {NORM} (a, scale)
        y = Add (a, b)"""
    model = model_of("g (float[S,8] x) => (float[S,8] y)", nodes, {"scale": f32(8)})
    report = FuseResidualNorm().run(model)
    assert (report.count, report.skipped) == (1, ["RMSNormalization: its operand is no sum"])
