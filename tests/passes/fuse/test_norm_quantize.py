"""`fuse-norm-quantize`: quantization moves into what feeds it."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.fuse.norm_quantize import FuseNormQuantize
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.ragged import run

SIGNATURE = "g (float[S,8] x, float[S,8] r) => (float[S,N] t, int8[S,N] q, float[S,1] s)"
CASES = {
    "RMSNormQuantize": (
        "t = Tanh (r)\nn = RMSNormalization <epsilon: float = 0.5> (x, scale)",
        "t = Tanh (r)\nq, s = optc.RMSNormQuantize <epsilon = 0.5> (x, scale)",
    ),
    "AddRMSNormQuantize": (
        "sum, n = optc.AddRMSNorm <epsilon: float = 0.5> (r, x, scale)\nt = Tanh (sum)",
        "sum, q, s = optc.AddRMSNormQuantize <epsilon = 0.5> (r, x, scale)\nt = Tanh (sum)",
    ),
    "GatedActivationQuantize": (
        't = Tanh (r)\nn = optc.GatedActivation <activation: string = "gelu"> (x)',
        "t = Tanh (r)\nq, s = optc.GatedActivationQuantize <activation: string = gelu> (x)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_fused(name: str) -> None:
    before, after = CASES[name]
    nodes = f"{before}\nq, s = optc.QuantizeActivation (n)"
    model = model_of(SIGNATURE, nodes, {"scale": f32(8)})
    feeds = {"x": f32(3, 8), "r": f32(3, 8, seed=1)}
    want = run(model, feeds)
    assert FuseNormQuantize().run(model).details == {name: 1}
    assert nodes_text(model) == after
    for got, expect in zip(run(model, feeds), want, strict=True):
        np.testing.assert_array_equal(got, expect)


@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_asked_for(name: str) -> None:
    before, after = CASES[name]
    signature = SIGNATURE.replace("int8[", "int16[")
    nodes = f"{before}\nq, s = optc.QuantizeActivation <bits: int = 16> (n)"
    model = model_of(signature, nodes, {"scale": f32(8)})
    feeds = {"x": f32(3, 8), "r": f32(3, 8, seed=1)}
    want = run(model, feeds)
    FuseNormQuantize().run(model)
    assert nodes_text(model) == after.replace("> (", ", bits = 16> (")
    assert [v.dtype.name for v in model.graph.outputs if v.name == "q" and v.dtype] == ["INT16"]
    for got, expect in zip(run(model, feeds), want, strict=True):
        np.testing.assert_array_equal(got, expect)


def test_a_norm_that_is_used_in_float_too_is_left() -> None:
    nodes = """
        n = RMSNormalization (x, scale)
        q, s = optc.QuantizeActivation (n)
        t = Add (n, r)"""
    model = model_of(SIGNATURE, nodes, {"scale": f32(8)})
    model.graph[0].name = "norm"
    before = nodes_text(model)
    report = FuseNormQuantize().run(model)
    assert report.skipped == ["QuantizeActivation: the float result of norm is used too"]
    assert nodes_text(model) == before


def test_other_operands_are_left() -> None:
    nodes = "t = Tanh (x)\nq, s = optc.QuantizeActivation (t)"
    model = model_of(SIGNATURE, nodes, {"scale": f32(8)})
    report = FuseNormQuantize().run(model)
    assert report.skipped == ["QuantizeActivation: its operand is a result of Tanh"]
    assert nodes_text(model) == expected(
        """
        t = Tanh (x)
        q, s = optc.QuantizeActivation (t)"""
    )


def test_others_behind_what_is_left_are_fused() -> None:
    nodes = """
        t = Tanh (x)
        q0, s0 = optc.QuantizeActivation (t)
        m = RMSNormalization (r, scale)
        q1, s1 = optc.QuantizeActivation (m)
        u = Add (m, r)
        n = RMSNormalization (u, scale)
        q, s = optc.QuantizeActivation (n)"""
    model = model_of(SIGNATURE, nodes, {"scale": f32(8)})
    assert FuseNormQuantize().run(model).details == {"RMSNormQuantize": 1}


@pytest.mark.parametrize("name", CASES)
def test_rotations_join(name: str) -> None:
    before, after = CASES[name]
    width = 16 if name == "GatedActivationQuantize" else 32
    signature = SIGNATURE.replace("[S,8]", "[S,32]")
    stated = f"block: int = 16, width: int = {width}"
    nodes = f"{before}\nm = optc.BlockHadamard <{stated}> (n)\nq, s = optc.QuantizeActivation (m)"
    model = model_of(signature, nodes, {"scale": f32(32)})
    feeds = {"x": f32(3, 32), "r": f32(3, 32, seed=1)}
    want = run(model, feeds)
    assert FuseNormQuantize().run(model).details == {"BlockHadamard": 1, name: 1}
    joined = f", hadamard = 16, width = {width}> ("
    start, _, end = after.rpartition("> (")
    assert nodes_text(model) == f"{start}{joined}{end}"
    for got, expect in zip(run(model, feeds), want, strict=True):
        np.testing.assert_array_equal(got, expect)


def test_a_rotation_that_two_read_stays() -> None:
    """8 and 16 bits of one input, say."""
    nodes = """
        n = RMSNormalization (x, scale)
        m = optc.BlockHadamard <block: int = 4, width: int = 8> (n)
        q, s = optc.QuantizeActivation (m)
        t = Add (m, r)"""
    model = model_of(SIGNATURE, nodes, {"scale": f32(8)})
    before = nodes_text(model)
    report = FuseNormQuantize().run(model)
    assert report.skipped == ["QuantizeActivation: its operand is a result of BlockHadamard"]
    assert nodes_text(model) == before
