"""`find-router`: several spellings become one operator, and what is none is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.functions import attributes_of
from optc.passes.canonicalize.dataflow import MISS
from optc.passes.canonicalize.experts.find_experts import FindExperts
from optc.passes.canonicalize.experts.find_router import FindRouter
from tests.passes.canonicalize.texts import evaluate, exported
from tests.support.ir_text import f32, nodes_text

E, K, D, N = 8, 3, 6, 4
EPSILON = float(np.float32(1e-20))
CONSTANTS = {
    "k": np.array([K]),
    "last": np.array([-1]),
    "two": np.array([2]),
    "groups": np.array([-1, 4, 2]),
    "flat": np.array([-1, E]),
    "spread": np.array([-1, 4, 2]),
    "epsilon": np.float32(1e-20),
    "scale": np.float32(2.5),
    "near": np.float32(0.1),
    "split": np.array([7, -1, E]),
    "three": np.array([-1, K]),
    "never": np.float32(-np.inf),
    "bias2": f32(E, seed=3),
}
SOFTMAX = "p = Softmax <axis: int = 1> (logits)"
DIVIDE = "s = ReduceSum <keepdims: int = 1> (v, last) weights = Div (v, s)"
CHOOSE = "v, index = TopK <axis: int = 1> (p, k)"
SIGMOID = "p = Sigmoid (logits) b = Add (p, bias)"
GROUPED = """
    g = Reshape (b, groups)
    best, where_best = TopK <axis: int = 2> (g, two)
    sums = ReduceSum <keepdims: int = 0> (best, last)
    top, where_top = TopK <axis: int = 1, sorted: int = 0> (sums, two)
    sums_shape = Shape (sums)
    none = ConstantOfShape (sums_shape)
    ones_shape = Shape (where_top)
    ones = ConstantOfShape <value: tensor = float[1] {1.0}> (ones_shape)
    marks = ScatterElements <axis: int = 1> (none, where_top, ones)
    column = Unsqueeze (marks, last)
    g_shape = Shape (g)
    wide = Expand (column, g_shape)
    all_marks = Reshape (wide, flat)
    yes = Cast <to: int = 9> (all_marks)
    no = Not (yes)
    c = Where (no, never, b)"""
WEIGHED = """
    v = GatherElements <axis: int = -1> (p, index)
    s = ReduceSum <keepdims: int = 1> (v, last)
    t = Add (s, epsilon)
    d = Div (v, t)
    weights = Mul (d, scale)"""
#: Of each turn the largest, its softmax among those near it, and it leaves.
TURN = """
    m{i} = ReduceMax <keepdims: int = 1> ({left}, last)
    i{i} = ArgMax <axis: int = -1, keepdims: int = 1> ({left})
    gap{i} = Sub (m{i}, logits) factor{i} = Max (magnitude, m{i}) ratio{i} = Div (gap{i}, factor{i})
    far{i} = Greater (ratio{i}, near) kept{i} = Where (far{i}, never, {left})
    soft{i} = Softmax <axis: int = -1> (kept{i})
    w{i} = GatherElements <axis: int = -1> (soft{i}, i{i})
    shape{i} = Shape (i{i}) gone{i} = Expand (never, shape{i})
    left{i} = ScatterElements <axis: int = -1> ({left}, i{i}, gone{i})"""
MIXED = (
    "magnitude = Abs (logits)"
    + "".join(TURN.format(i=i, left=f"left{i - 1}" if i else "logits") for i in range(K))
    + "weights = Concat <axis: int = -1> (w0, w1, w2) index = Concat <axis: int = -1> (i0, i1, i2)"
)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax, choice": (f"{SOFTMAX} weights, index = TopK <axis: int = 1> (p, k)", {}),
    "softmax, choice, division": (f"{SOFTMAX} {CHOOSE} {DIVIDE}", {"normalize": 1}),
    "choice, softmax": (
        "v, index = TopK <axis: int = 1> (logits, k) weights = Softmax <axis: int = 1> (v)",
        {"scoring": "softmax_after"},
    ),
    "sigmoid, corrected, scaled": (
        f"{SIGMOID} u, index = TopK <axis: int = 1, sorted: int = 0> (b, k) {WEIGHED}",
        {"scoring": "sigmoid", "normalize": 1, "norm_epsilon": EPSILON, "scale": 2.5},
    ),
    "corrected logits, sigmoid": (
        "b = Add (logits, bias) u, index = TopK <axis: int = 1> (b, k) "
        "w = GatherElements <axis: int = 1> (logits, index) v = Sigmoid (w) " + DIVIDE,
        {"scoring": "sigmoid_after", "normalize": 1},
    ),
    "sparse mixer": (
        MIXED,
        {"scoring": "sparse_mixer", "threshold": float(np.float32(0.1))},
    ),
    "sigmoid, corrected, within groups": (
        f"{SIGMOID} {GROUPED} u, index = TopK <axis: int = 1, sorted: int = 0> (c, k) {WEIGHED}",
        {
            "scoring": "sigmoid",
            "normalize": 1,
            "norm_epsilon": EPSILON,
            "scale": 2.5,
            "groups": 4,
            "top_groups": 2,
            "group_score": "top2_sum",
        },
    ),
}
PLAIN = {"top_k": K, "scoring": "softmax", "normalize": 0, "norm_epsilon": 0.0, "scale": 1.0}
PLAIN |= {"groups": 1, "top_groups": 1, "group_score": "max"}


def model(router: str) -> ir.Model:
    """A router over x, and one matmul by its experts, as captured."""
    weights = {"router": f32(D, E), "stack": f32(E, N, D), "bias": 0.3 * f32(E)}
    nodes = f"""
        logits = MatMul (x, router) {router}
        y = optc.ExpertMatMul <transposed: int = 0, spread: int = 1> (x, index, stack)
        z = optc.CombineExperts (y, weights)"""
    found = exported(f"(float[T,{D}] x) => (float[T,{N}] z)", nodes, weights, CONSTANTS)
    for node in found.graph:  # the parser infers no shapes of operators of ours
        if node.op_type == "ExpertMatMul":
            node.outputs[0].shape = ir.Shape(["T", K, N])
    FindExperts().run(found)
    return found


@pytest.mark.parametrize("case", CASES)
def test_spellings(case: str) -> None:
    router, attributes = CASES[case]
    one = model(router)
    x = 2 * f32(40, D)
    before = evaluate(one, {"x": x})
    report = FindRouter().run(one)
    (node,) = (n for n in one.graph if n.op_type == "TopKRouter")
    assert attributes_of(node) == {**PLAIN, **attributes}
    assert [str(value.shape) for value in node.outputs] == [f"[T,{K}]"] * 2
    assert [v and v.name for v in node.inputs] == [
        "logits",
        *(["bias"] if "bias" in router else []),
    ]
    kinds = [n.op_type for n in one.graph]
    assert kinds == ["MatMul", "TopKRouter", "ExpertMatMul", "CombineExperts"]
    assert report.count == 1
    np.testing.assert_allclose(evaluate(one, {"x": x}), before, rtol=1e-4, atol=1e-5)


#: Ways to look a factor of each expert up; exporters write the second for ``factors[index]``.
LOOKUPS = {
    "a row": "f = Gather (bias, index)",
    "an index": """
        largest = Max (index) shape = Shape (largest) whole = Expand (index, shape)
        apart = Unsqueeze (whole, last) places = Concat <axis = -1> (apart)
        across = Transpose <perm = [0]> (bias) found = GatherND (across, places)
        f = Transpose <perm = [0, 1]> (found)""",
}


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_a_factor_of_each_expert_goes_into_its_weights(lookup: str) -> None:
    router = f"{SOFTMAX} {CHOOSE} {LOOKUPS[lookup]} weights = Mul (v, f)"
    one = model(router)
    x = 2 * f32(40, D)
    before = evaluate(one, {"x": x})
    report = FindRouter().run(one)
    assert report.details == {"factors of experts in their weights": 1, "softmax": 1}
    kinds = [n.op_type for n in one.graph]
    assert kinds == ["MatMul", "TopKRouter", "ExpertMatMul", "CombineExperts"]
    assert "bias" not in one.graph.initializers
    np.testing.assert_allclose(evaluate(one, {"x": x}), before, rtol=1e-4, atol=1e-5)


def test_a_second_run_changes_nothing() -> None:
    one = model(CASES["choice, softmax"][0])
    FindRouter().run(one)
    text = nodes_text(one)
    assert FindRouter().run(one).count == 0
    assert nodes_text(one) == text


@pytest.mark.parametrize(
    ("router", "reason"),
    [
        (f"{SOFTMAX} {CHOOSE} weights = Sqrt (v)", "no configuration of optc::TopKRouter"),
        (MIXED.replace("Max (magnitude, m1)", "Identity (magnitude)"), "no configuration"),
        (
            f"q = Add (logits, bias) {CHOOSE.replace('p,', 'q,')} weights = Mul (v, scale)",
            "no conf",
        ),
        (
            "p = Reshape (logits, split) v, i = TopK <axis: int = 2> (p, k) "
            "index = Reshape (i, three) u = Reshape (v, three) "
            "weights = Softmax <axis: int = 1> (u)",
            "it cannot be run on logits alone",
        ),
        ("p = Sigmoid (x) weights, index = TopK <axis: int = 1> (p, k)", "it reads the input x"),
        (
            "o = MatMul (x, router) p = Add (logits, o) v, index = TopK <axis: int = 1> (p, k) "
            "weights = Softmax <axis: int = 1> (v)",
            "2 linear layers give its logits",
        ),
        (
            f"{SIGMOID} b2 = Add (b, bias2) u, index = TopK <axis: int = 1> (b2, k) {WEIGHED}",
            "it reads 2 vectors of 8 elements",
        ),
    ],
)
def test_what_is_no_router(router: str, reason: str) -> None:
    one = model(router)
    text = nodes_text(one)
    report = FindRouter().run(one)
    assert nodes_text(one) == text
    assert report.count == 0
    assert reason in report.skipped[0]
    (combine,) = (n for n in one.graph if n.op_type == "CombineExperts")
    assert reason in combine.meta[MISS]
