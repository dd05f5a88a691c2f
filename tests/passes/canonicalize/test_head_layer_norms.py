"""Layer norms over each head become head norms of heads without their means."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.dataflow import MISS
from optc.passes.canonicalize.find_norms import FindNorms
from optc.passes.canonicalize.fold_heads import FoldHeads
from optc.passes.canonicalize.head_layer_norms import heads_of_mean, is_centred
from optc.passes.canonicalize.probe_heads import ProbeHeads
from tests.passes.canonicalize.test_probe_heads import ATTEND, SIGNATURE
from tests.passes.canonicalize.texts import after, evaluate, exported
from tests.support.ir_text import expected, f32

CONSTANTS: dict[str, Any] = {
    "split": np.array([0, 0, 2, 8]),
    "folded": np.array([0, 0, 16]),
    "scale": 1 + 0.2 * f32(8),
    "bias": f32(8, seed=1),
}
SWAP = "Transpose <perm: ints = [0, 2, 1, 3]>"
NORM = "LayerNormalization <axis: int = -1, epsilon: float = 1e-3>"
LAYOUTS = {
    "tokens first": f"a = Reshape (x, split) n = {NORM} ({{}}) y = Reshape (n, folded)",
    "heads first": f"""
        h = Reshape (x, split) a = {SWAP} (h) n = {NORM} ({{}})
        t = {SWAP} (n) y = Reshape (t, folded)""",
}


def model(nodes: str, more: dict[str, Any] | None = None) -> ir.Model:
    constants = {k: v for k, v in {**CONSTANTS, **(more or {})}.items() if k in nodes}
    return exported("(float[B,S,16] x) => (float[B,S,16] y)", nodes, {}, constants)


def in_float64(x: np.ndarray, biased: bool, epsilon: float = 1e-3) -> np.ndarray:
    heads = x.astype(np.float64).reshape(*x.shape[:2], 2, 8)
    centred = heads - heads.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * CONSTANTS["scale"]
    result: np.ndarray = (normed + CONSTANTS["bias"] * biased).reshape(x.shape)
    return result


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operands", ["a, scale, bias", "a, scale"])
def test_means_are_taken_off_and_biases_added(layout: str, operands: str) -> None:
    one = model(LAYOUTS[layout].format(operands))
    text, _ = after(one, FindNorms(), FoldHeads())
    biased = "bias" in operands
    normed = "optc.HeadRMSNorm <num_heads = 2, epsilon = 0.001> (t2, scale)"
    last = f"t3 = {normed} y = Add (t3, bias.heads)" if biased else f"y = {normed}"
    assert text == expected(f"""
        t0 = MatMul (x, mean_heads.2x8)
        t1 = MatMul (t0, spread_heads.2x8)
        t2 = Sub (x, t1)
        {last.replace(" y =", chr(10) + "        y =")}
        """)
    x = 3 + f32(2, 5, 16)
    np.testing.assert_allclose(evaluate(one, {"x": x}), in_float64(x, biased), rtol=1e-4, atol=1e-5)


def test_an_epsilon_that_is_left_out_is_that_of_onnx() -> None:
    nodes = LAYOUTS["tokens first"].format("a, scale, bias").replace(", epsilon: float = 1e-3", "")
    one = model(nodes)
    text, _ = after(one, FindNorms(), FoldHeads())
    assert "HeadRMSNorm" in text
    x = 0.003 * f32(2, 5, 16)  # so small that it matters
    expected_rows = in_float64(x, True, 1e-5)
    np.testing.assert_allclose(evaluate(one, {"x": x}), expected_rows, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("operands", "more"),
    [
        ("a, wide", {"wide": f32(2, 8)}),
        ("a, scale, made", {}),
    ],
)
def test_other_scales_and_computed_biases_are_left(operands: str, more: dict[str, Any]) -> None:
    nodes = LAYOUTS["tokens first"].format(operands).replace("n =", "made = Neg (scale) n =", 1)
    one = model(nodes, more)
    report = FindNorms().run(one)
    assert report.count == 0
    assert any("not a norm of heads I know" in str(n.meta.get(MISS)) for n in one.graph)


FUSED = (
    """
    p = MatMul (x, w) s = Reshape (p, triples) all = Transpose <perm: ints = [2, 0, 3, 1, 4]> (s)
    qa = Gather <axis: int = 0> (all, n0) ka = Gather <axis: int = 0> (all, n1)
    vh = Gather <axis: int = 0> (all, n2)
    qh = {norm} (qa, scale, bias) kh = {norm} (ka, scale, bias)
    """.replace("{norm}", NORM)
    + ATTEND.format(q="qh", k="kh", v="vh")
)


def test_heads_of_a_fused_projection_become_layers_of_their_own() -> None:
    constants = {**CONSTANTS, "triples": np.array([0, 0, 3, 2, 8])}
    constants |= {f"n{i}": np.array(i) for i in range(3)}
    given = {k: v for k, v in constants.items() if k in FUSED}
    one = exported(SIGNATURE, FUSED, {"w": f32(6, 48)}, given)
    fed = {"x": f32(2, 5, 6), "position_ids": np.tile(np.arange(5), (2, 1))}
    before = evaluate(one, fed)
    text, _ = after(one, FindNorms(), ProbeHeads())
    norms = [n for n in one.graph if n.op_type == "HeadRMSNorm"]
    assert len(norms) == 2
    assert all(n.inputs[0] is not None and is_centred(n.inputs[0]) for n in norms)
    assert [heads_of_mean(n) for n in one.graph if heads_of_mean(n)] == [2, 2]
    assert "Gather" not in text
    np.testing.assert_allclose(evaluate(one, fed), before, rtol=1e-4, atol=1e-5)
