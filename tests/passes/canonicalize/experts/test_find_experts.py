"""`find-experts` on text: stacks of matrices become rows, interleaved gates are put first."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.weights import LazyWeight
from optc.passes.canonicalize.experts.find_experts import FindExperts
from optc.passes.canonicalize.slices_to_split import SlicesToSplit
from tests.passes.canonicalize.texts import evaluate, exported
from tests.support.experts.oracle import expert_matmul
from tests.support.ir_text import Array, expected, f32, nodes_text

T, K, E, D, N = 5, 2, 3, 4, 6
SIGNATURE = f"(float[T,{D}] x, int64[T,{K}] index) => (float[T,{K},{N}] y)"
INDEX = np.array([[0, 1], [2, 1], [1, 0], [2, 0], [0, 2]])


def model(nodes: str, signature: str, weights: dict[str, Array]) -> ir.Model:
    constants = {
        "zero": np.array([0]),
        "one": np.array([1]),
        "end": np.array([1 << 40]),
        "last": np.array([2]),
        "two": np.array([2]),
    }
    constants = {name: array for name, array in constants.items() if name in nodes}
    found = exported(signature, nodes, {k: v for k, v in weights.items() if v.ndim < 4}, constants)
    for node in found.graph:
        if node.domain == "optc":  # the parser infers no shapes of operators of ours
            node.outputs[0].shape = ir.Shape(["T", K, N])
            node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        elif node.op_type == "Slice":
            node.outputs[0].shape = ir.Shape(["T", K, N // 2])
    return found


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("biased", [False, True])
def test_stacks_become_rows(transposed: int, biased: bool) -> None:
    stack, bias = f32(E, N, D), f32(E, N)
    given = np.ascontiguousarray(stack.swapaxes(1, 2)) if transposed else stack
    nodes = f"""y = optc.ExpertMatMul <transposed: int = {transposed}, spread: int = 1>
                (x, index, stack{", bias" if biased else ""})"""
    one = model(nodes, SIGNATURE, {"stack": given, **({"bias": bias} if biased else {})})
    report = FindExperts().run(one)
    more = ", bias" if biased else ""
    assert nodes_text(one) == expected(f"""
        val_0 = Cast <to = 6> (index)
        y = optc.ExpertMatMul <num_experts = 3, spread = 1> (x, val_0, stack{more})
        """)
    assert report.details == {"matmul by experts": 1}
    weight = one.graph.initializers["stack"].const_value
    assert isinstance(weight, LazyWeight)
    assert (weight.rows_shape, weight.transposed) == ((E * N, D), True)
    x = f32(T, D)
    columns = stack.reshape(E * N, D).T
    want = expert_matmul(x, INDEX, columns, E, bias.ravel() if biased else None, spread=True)
    got = evaluate(one, {"x": x, "index": INDEX})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


INTERLEAVED = """
    h = optc.ExpertMatMul <transposed: int = 0, spread: int = 1> (x, index, stack, bias)
    gate = Slice (h, zero, end, last, two)
    up = Slice (h, one, end, last, two)
    y = Sub (gate, up)"""


def test_interleaved_gates_are_put_first() -> None:
    stack, bias = f32(E, N, D), f32(E, N)
    signature = SIGNATURE.replace(f"{K},{N}]", f"{K},{N // 2}]")
    one = model(INTERLEAVED, signature, {"stack": stack, "bias": bias})
    report = FindExperts().run(one)
    SlicesToSplit().run(one)
    assert report.details == {"gate and up interleaved": 1}
    kinds = [node.op_type for node in one.graph]
    assert kinds == ["Cast", "ExpertMatMul", "Split", "Sub"]
    x = f32(T, D)
    columns = stack.reshape(E * N, D).T
    both = expert_matmul(x, INDEX, columns, E, bias.ravel(), spread=True)
    got = evaluate(one, {"x": x, "index": INDEX})
    np.testing.assert_allclose(got, both[..., ::2] - both[..., 1::2], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "nodes",
    [
        INTERLEAVED.replace("y = Sub (gate, up)", "a = Neg (h) y = Sub (gate, up)\nz = Abs (a)"),
        INTERLEAVED.replace("(h, one, end", "(h, zero, end"),
    ],
)
def test_other_slices_stay(nodes: str) -> None:
    signature = SIGNATURE.replace(f"{K},{N}]", f"{K},{N // 2}]")
    if "z =" in nodes:
        signature = signature.replace("] y)", f"] y, float[T,{K},{N}] z)")
    one = model(nodes, signature, {"stack": f32(E, N, D), "bias": f32(E, N)})
    report = FindExperts().run(one)
    assert report.details == {"matmul by experts": 1}
    assert sum(node.op_type == "Slice" for node in one.graph) == 2


def test_a_computed_weight_is_named() -> None:
    nodes = """
        s = Neg (stack)
        y = optc.ExpertMatMul <transposed: int = 0, spread: int = 1> (x, index, s)"""
    one = model(nodes, SIGNATURE, {"stack": f32(E, N, D)})
    one.graph[0].outputs[0].shape = ir.Shape([E, N, D])
    report = FindExperts().run(one)
    assert report.count == 0
    assert "its weight is computed, not a constant" in report.skipped[0]


def test_a_weight_that_two_read_is_made_once() -> None:
    nodes = """
        a = optc.ExpertMatMul <transposed: int = 0, spread: int = 1> (x, index, stack)
        b = optc.ExpertMatMul <transposed: int = 0, spread: int = 1> (x, index, stack)
        y = Add (a, b)"""
    one = model(nodes, SIGNATURE, {"stack": f32(E, N, D)})
    FindExperts().run(one)
    assert list(one.graph.initializers) == ["stack"]
    x = f32(T, D)
    columns = f32(E, N, D).reshape(E * N, D).T
    want = 2 * expert_matmul(x, INDEX, columns, E, None, spread=True)
    got = evaluate(one, {"x": x, "index": INDEX})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
