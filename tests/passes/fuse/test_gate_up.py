"""`fuse-gate-up`: one matmul and one gated activation."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.fuse.gate_up import FuseGateUp
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.ragged import run

SIGNATURE = "g (float[S,8] x) => (float[S,6] y)"
ACTIVATIONS = {
    "silu": "z = Sigmoid (g)\na = Mul (g, z)",
    "gelu": "a = Gelu (g)",
    "gelu_tanh": 'a = Gelu <approximate: string = "tanh"> (g)',
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("last", ["Mul (a, u)", "Mul (u, a)"])
@pytest.mark.parametrize("bias", [True, False])
def test_two_matmuls(name: str, last: str, bias: bool) -> None:
    added = "u0 = MatMul (x, wu)\nu = Add (u0, bu)" if bias else "u = MatMul (x, wu)"
    nodes = f"g = MatMul (x, wg)\n{added}\n{ACTIVATIONS[name]}\ny = {last}"
    model = model_of(SIGNATURE, nodes, {"wg": f32(8, 6), "wu": f32(8, 6, seed=1), "bu": f32(6)})
    before = run(model, {"x": f32(3, 8)})
    assert FuseGateUp().run(model).details == {name: 1}
    biased = "wg+wu.add = Add (wg+wu.matmul, wg+wu.bias)\n" if bias else ""
    assert nodes_text(model) == (
        f"wg+wu.matmul = MatMul (x, wg+wu)\n{biased}"
        f"y = optc.GatedActivation <activation: string = {name}> "
        f"(wg+wu.{'add' if bias else 'matmul'})"
    )
    np.testing.assert_allclose(run(model, {"x": f32(3, 8)})[0], before[0], rtol=1e-5, atol=1e-5)


def test_halves_of_one_matmul() -> None:
    nodes = """
        t = MatMul (x, w)
        g, u = Split <axis: int = -1> (t, sizes)
        z = Sigmoid (g)
        a = Mul (z, g)
        y = Mul (u, a)"""
    model = model_of(SIGNATURE, nodes, {"w": f32(8, 12), "sizes": np.array([6, 6])})
    before = run(model, {"x": f32(3, 8)})
    assert FuseGateUp().run(model).count == 1
    assert nodes_text(model) == expected(
        """
        t = MatMul (x, w)
        y = optc.GatedActivation <activation: string = silu> (t)"""
    )
    np.testing.assert_allclose(run(model, {"x": f32(3, 8)})[0], before[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("up", "reason"),
    [
        ("h = Tanh (x)\nu = MatMul (h, wu)", "gate and up have different operands"),
        ("u = Tanh (x)", "gate and up are not results of linear layers"),
        ("u = MatMul (x, one)", "gate and up have different widths"),
        ("u = MatMul (x, wu)\nw = Tanh (u)", "gate or up is used elsewhere too"),
    ],
)
def test_near_misses_are_told(up: str, reason: str) -> None:
    output = ", float[S,8] w" if "w = " in up else ""
    model = model_of(
        f"g (float[S,8] x) => (float[S,8] y{output})",
        f"g = MatMul (x, wg)\n{up}\na = Gelu (g)\ny = Mul (a, u)",
        {"wg": f32(8, 8), "wu": f32(8, 8, seed=1), "one": f32(8, 1)},
    )
    before = nodes_text(model)
    report = FuseGateUp().run(model)
    assert (report.count, report.skipped) == (0, [f"Mul: {reason}"])
    assert nodes_text(model) == before


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ("y = Gelu (g)", "Gelu: its result is multiplied by nothing: the MLP has no gate"),
        (
            "r = Relu (g)\ns = Mul (r, r)\ny = Mul (s, g)",
            "Relu: a gate's activation must be silu, gelu or gelu_tanh",
        ),
    ],
)
def test_other_mlps_are_told(nodes: str, reason: str) -> None:
    model = model_of(SIGNATURE, f"g = MatMul (x, w)\n{nodes}", {"w": f32(8, 6)})
    report = FuseGateUp().run(model)
    assert (report.count, report.skipped) == (0, [reason])


@pytest.mark.parametrize("alpha", ["", "<alpha: float = 1.0> "])
def test_swish_is_silu(alpha: str) -> None:
    nodes = "gu = MatMul (x, w)\ng, u = Split <axis: int = -1> (gu, sizes)\n"
    nodes += f"a = Swish {alpha}(g)\ny = Mul (a, u)"
    values = {"w": f32(8, 12), "sizes": np.array([6, 6])}
    model = model_of(SIGNATURE, nodes, values)
    report = FuseGateUp().run(model)
    assert report.count == 1, report.skipped
    assert "activation: string = silu" in nodes_text(model)


def test_another_alpha_of_swish_is_an_attribute() -> None:
    nodes = "gu = MatMul (x, w)\ng, u = Split <axis: int = -1> (gu, sizes)\n"
    nodes += "a = Swish <alpha: float = 2.0> (g)\ny = Mul (a, u)"
    model = model_of(SIGNATURE, nodes, {"w": f32(8, 12), "sizes": np.array([6, 6])})
    assert FuseGateUp().run(model).details == {"silu": 1}
    assert "activation: string = silu, alpha = 2" in nodes_text(model)


def test_halves_in_the_other_order_are_left() -> None:
    nodes = "t = MatMul (x, w)\nu, g = Split <axis: int = -1> (t, s)\na = Gelu (g)\ny = Mul (a, u)"
    model = model_of(SIGNATURE, nodes, {"w": f32(8, 12), "s": np.array([6, 6])})
    assert FuseGateUp().run(model).count == 0
