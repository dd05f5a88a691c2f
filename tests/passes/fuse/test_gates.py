"""Clamped gates, as gpt-oss has them: one gated activation."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.fuse.gate_up import FuseGateUp
from optc.passes.fuse.norm_quantize import FuseNormQuantize
from tests.support import oracle
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.ragged import run

SIGNATURE = "g (float[S,8] x) => (float[S,6] y)"
HEAD = "t = MatMul (x, w)\ng, u = Split <axis: int = -1> (t, sizes)\n"
CLAMPED = """
    h = Clip (g, , most)
    v = Clip (u, least, most)
    a = Mul (h, alpha)
    z = Sigmoid (a)
    s = Mul (h, z)
    p = Add (v, one)
    y = Mul (p, s)"""
VALUES = {
    "w": 3 * f32(8, 12),
    "sizes": np.array([6, 6]),
    **{
        name: np.array(value, np.float32)
        for name, value in (("most", 1.5), ("least", -1.5), ("alpha", 1.75), ("one", 1.0))
    },
}


def fused(nodes: str) -> tuple[str, dict[str, int]]:
    """The text after the pass, which changes no result, and what it reports."""
    model = model_of(SIGNATURE, nodes, VALUES)
    x = f32(3, 8, seed=2)
    before = run(model, {"x": x})[0]
    report = FuseGateUp().run(model)
    np.testing.assert_allclose(run(model, {"x": x})[0], before, rtol=1e-5, atol=1e-6)
    return nodes_text(model), dict(report.details)


def test_limit_alpha_and_shift_become_attributes() -> None:
    text, details = fused(HEAD + CLAMPED)
    assert text == expected(
        """
        t = MatMul (x, w)
        y = optc.GatedActivation <activation: string = silu, alpha = 1.75, up_shift = 1, \
limit = 1.5> (t)"""
    )
    assert details == {"silu, clamped": 1}


@pytest.mark.parametrize(
    ("old", "new", "attributes"),
    [
        ("Clip (g, , most)", "Min (most, g)", {"alpha", "limit", "up_shift"}),
        ("Clip (g, , most)", "Identity (g)", set()),  # up alone is held
        ("Clip (g, , most)", "Clip (g, least, most)", set()),
        ("Clip (u, least, most)", "Clip (u, , most)", set()),
        ("Clip (u, least, most)", "Clip (u, least, one)", set()),
        ("p = Add (v, one)", "p = Identity (v)", set()),  # no node that is known lies between
    ],
)
def test_other_clamps_are_left(old: str, new: str, attributes: set[str]) -> None:
    assert old in CLAMPED
    text, details = fused(HEAD + CLAMPED.replace(old, new))
    assert {name for name in ("alpha", "limit", "up_shift") if f"{name} =" in text} == attributes
    assert details == ({"silu, clamped": 1} if attributes else {})


def test_a_clamped_gate_that_is_used_elsewhere_is_left() -> None:
    model = model_of(
        "g (float[S,8] x) => (float[S,6] y, float[S,6] e)", f"{HEAD}{CLAMPED}\ne = Neg (h)", VALUES
    )
    assert FuseGateUp().run(model).count == 0


def test_it_is_quantized_with_its_attributes() -> None:
    nodes = """n = optc.GatedActivation <activation: string = "silu", limit: float = 0.5, \
alpha: float = 1.5> (x)
        q, s = optc.QuantizeActivation (n)"""
    model = model_of("g (float[S,8] x) => (int8[S,4] q, float[S,1] s)", nodes, {})
    x = 2 * f32(3, 8)
    want = oracle.quantize_activation(oracle.gated(x, "silu", limit=0.5, alpha=1.5))
    assert FuseNormQuantize().run(model).details == {"GatedActivationQuantize": 1}
    assert "limit = 0.5" in nodes_text(model)
    q, s = run(model, {"x": x})
    np.testing.assert_array_equal(q, want[0])
    np.testing.assert_allclose(s, want[1], rtol=1e-6)
