"""`fold-tokens` where experts work on all tokens in one axis: [B*S, k, N] becomes [B, S, k, N]."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.functions import ensure_function
from optc.passes.canonicalize.fold_tokens import FoldTokens
from tests.passes.canonicalize.texts import evaluate, exported
from tests.support.experts.oracle import mixture
from tests.support.ir_text import f32, nodes_text

E, K, D, F = 4, 2, 6, 5
ROUTER = """<top_k: int = 2, scoring: string = "softmax", normalize: int = 1,
    norm_epsilon: float = 0.0, scale: float = 1.0, groups: int = 1, top_groups: int = 1,
    group_score: string = "max">"""
NODES = f"""
    flat = Reshape (x, to_flat)
    logits = MatMul (flat, router)
    weights, index = optc.TopKRouter {ROUTER} (logits)
    h = optc.ExpertMatMul <num_experts: int = 4, spread: int = 1> (flat, index, gate_up)
    gate = Slice (h, zero, five, axis)
    up = Slice (h, five, ten, axis)
    s = Sigmoid (gate)
    a = Mul (gate, s)
    p = Mul (a, up)
    one, two = Split <axis: int = 2> (p, sizes)
    q = Concat <axis: int = 2> (one, two)
    y = optc.ExpertMatMul <num_experts: int = 4, spread: int = 0> (q, index, down)
    z = optc.CombineExperts (y, weights)
    result = Reshape (z, back)"""
SHAPES = {
    **dict.fromkeys(("weights", "index"), (K,)),
    "h": (K, 2 * F),
    "y": (K, D),
    "z": (D,),
    **dict.fromkeys(("gate", "up", "s", "a", "p", "q"), (K, F)),
    "one": (K, 2),
    "two": (K, 3),
}


def model() -> ir.Model:
    weights = {"router": f32(D, E), "gate_up": f32(D, E * 2 * F), "down": f32(F, E * D)}
    constants = {
        "to_flat": np.array([-1, D]),
        "back": np.array([2, -1, D]),
        "zero": np.array([0]),
        "five": np.array([F]),
        "ten": np.array([2 * F]),
        "axis": np.array([2]),
        "sizes": np.array([2, 3]),
    }
    found = exported(f"(float[2,S,{D}] x) => (float[2,S,{D}] result)", NODES, weights, constants)
    for node in found.graph:
        for value in node.outputs:
            if value.name in SHAPES:
                value.shape = ir.Shape(["T", *SHAPES[value.name]])
        if node.domain == "optc":
            attributes = {name: one.value for name, one in node.attributes.items()}
            present = [value is not None for value in node.inputs]
            node.overload = ensure_function(found, node.op_type, attributes, present)
    return found


def test_experts_work_on_tokens_by_sequence() -> None:
    one, x = model(), f32(2, 3, D)
    before = evaluate(one, {"x": x})
    report = FoldTokens().run(one)
    assert report.details == {"reshape": 1}
    assert report.skipped == []
    text = nodes_text(one)
    assert "Reshape" not in text
    assert "axis = 2" not in text
    shapes = {n.op_type: n.outputs[0].shape for n in one.graph}
    assert list(shapes["Concat"] or ()) == [2, "S", K, F]
    np.testing.assert_allclose(evaluate(one, {"x": x}), before, rtol=1e-6, atol=1e-6)
    weights = (f32(*size) for size in ((D, E), (D, E * 2 * F), (F, E * D)))
    want = mixture(x, *weights, E, K, normalize=1)
    np.testing.assert_allclose(before, want, rtol=1e-4, atol=1e-5)
