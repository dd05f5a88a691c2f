"""`choose-experts`: layers that send every row through all experts, and those that only seem to."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.functions import attributes_of
from optc.passes.canonicalize.dataflow import MISS
from optc.passes.canonicalize.experts.choose_experts import ChooseExperts
from tests.passes.canonicalize.experts.test_find_router import PLAIN
from tests.passes.canonicalize.texts import evaluate, exported
from tests.support.ir_text import f32, nodes_text

E, D, F = 8, 6, 10
CONSTANTS: dict[str, Any] = {
    "k": np.array([1]),
    "two": np.array([2]),
    "last": np.array([-1]),
    "first": np.array([0]),
    "never": np.float32(-np.inf),
    "times": np.array([E, 1]),
    "flat": np.array([-1, D]),
    "flat1": np.array([-1, 1]),
    "stack": np.array([E, -1, D]),
    "unit": np.float32(1),
    "half": np.float32(0.5),
}
WEIGHTS = {
    "router": f32(D, E),
    "gate_up": f32(E, D, 2 * F),
    "down": f32(E, F, D, seed=2),
    "bias": f32(E, seed=3),
}
SCORES = """
    v, i = TopK <axis: int = 1> (logits, k)
    shape = Shape (logits) none = Expand (never, shape)
    masked = ScatterElements <axis: int = 1> (none, i, v)
    scores = Sigmoid (masked)"""
ROWS = """
    many = Tile (x, times) turned = Transpose <perm: ints = [1, 0]> (scores)
    one_each = Reshape (turned, flat1) scaled = Mul (many, one_each)
    rows = Reshape (scaled, stack)"""
EXPERTS = """
    both = MatMul (rows, gate_up)
    gate, up = Split <axis: int = 2, num_outputs: int = 2> (both)
    s = Sigmoid (gate) silu = Mul (gate, s) inner = Mul (up, silu)
    out = MatMul (inner, down)"""
SUM = """
    all = Reshape (out, flat) again = Reshape (all, stack)
    y = ReduceSum <keepdims: int = 0> (again, first)"""
WHOLE = SCORES + ROWS + EXPERTS + SUM


def model(nodes: str) -> ir.Model:
    nodes = f"logits = MatMul (x, router) {nodes}"
    named = set(nodes.replace("(", " ").replace(")", " ").replace(",", " ").split())
    weights = {k: v for k, v in WEIGHTS.items() if k in named}
    constants = {k: v for k, v in CONSTANTS.items() if k in named}
    one = exported(f"(float[T,{D}] x) => (float[T,{D}] y)", nodes, weights, constants)
    last = {"rows": D, "both": 2 * F, "gate": F, "up": F, "s": F, "silu": F, "inner": F}
    for value in (v for node in one.graph for v in node.outputs):
        width = {**last, "out": D, "again": D}.get(str(value.name))
        if width:  # the parser names the rows of each expert anew
            value.shape = ir.Shape([E, "T", width])
    return one


def test_the_chosen_expert_alone_is_asked() -> None:
    one, x = model(WHOLE), 2 * f32(40, D)
    before = evaluate(one, {"x": x})
    report = ChooseExperts().run(one)
    assert report.details == {"one of all experts": 1}
    assert [node.op_type for node in one.graph] == [
        *("MatMul", "TopKRouter", "Mul", "Clip", "ExpertMatMul", "Split", "Sigmoid", "Mul", "Mul"),
        *("ExpertMatMul", "CombineExperts"),
    ]
    (router,) = (n for n in one.graph if n.op_type == "TopKRouter")
    assert attributes_of(router) == {**PLAIN, "top_k": 1, "scoring": "sigmoid"}
    first, second = (n for n in one.graph if n.op_type == "ExpertMatMul")
    assert [attributes_of(n)["spread"] for n in (first, second)] == [1, 0]
    assert [n.inputs[2].name for n in (first, second) if n.inputs[2]] == ["gate_up", "down"]
    assert {str(v.shape) for n in (first, second) for v in n.outputs} == {
        f"[T,1,{2 * F}]",
        f"[T,1,{D}]",
    }
    np.testing.assert_allclose(evaluate(one, {"x": x}), before, rtol=1e-4, atol=1e-5)


def test_a_second_run_changes_nothing() -> None:
    one = model(WHOLE)
    ChooseExperts().run(one)
    text = nodes_text(one)
    assert ChooseExperts().run(one).count == 0
    assert nodes_text(one) == text


NEAR = {
    "2 experts get rows times a score": WHOLE.replace("(logits, k)", "(logits, two)"),
    "how many experts a row is not zero for differs": WHOLE.replace(
        "scores = Sigmoid (masked)", "scores = Relu (masked)"
    ),
    "no configuration of optc::TopKRouter gives its scores": WHOLE.replace(
        "scores = Sigmoid (masked)", "g = Sigmoid (masked) scores = Sqrt (g)"
    ),
    "8 experts get rows times a score": WHOLE.replace("Sigmoid (masked)", "Sigmoid (logits)"),
    "rows are no multiples of a token's row": WHOLE.replace("Mul (many", "Add (many"),
    "experts make something of rows that are zero": WHOLE.replace(
        "out = MatMul (inner, down)", "o = MatMul (inner, down) out = Add (o, half)"
    ),
    "is given something where rows are zero": WHOLE.replace(
        "inner = Mul (up, silu)", "inner = Add (up, s)"
    ),
    "a result of all experts is an output": WHOLE.replace("ReduceSum", "ReduceMax"),
    "mixes rows or experts": WHOLE.replace(
        "silu = Mul (gate, s)", "silu = Softmax <axis: int = 1> (gate)"
    ),
    "reads more than its expert's rows": WHOLE.replace(
        "out = MatMul (inner, down)", "o = MatMul (inner, down) out = Add (o, x)"
    ),
    "its rows are made of down": WHOLE.replace(
        "scores = Sigmoid (masked)",
        "g = Sigmoid (masked) sum = ReduceSum <keepdims: int = 0> (down) scores = Mul (g, sum)",
    ),
}


@pytest.mark.parametrize("reason", NEAR)
def test_what_only_seems_so_is_left_and_named(reason: str) -> None:
    one = model(NEAR[reason])
    report = ChooseExperts().run(one)
    assert report.count == 0
    assert reason in report.skipped[0]
    assert any(reason in str(node.meta.get(MISS)) for node in one.graph)
