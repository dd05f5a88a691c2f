"""Matmuls by experts found in graphs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import UnsupportedError
from optc.ir.experts import (
    feeds_router,
    find_expert_linear,
    find_expert_linears,
    first_expert_matmul,
    refuse_experts,
    values_of_experts,
)
from tests.support.experts.models import Experts, expert_model
from tests.support.ir_text import f32, model_of
from tests.support.models import Dense, dense_model


def test_a_matmul_by_experts() -> None:
    model = expert_model(Dense(windows=(0,)), Experts(count=6, chosen=2, bias=True))
    first, second = find_expert_linears(model.graph)
    assert (first.spread, second.spread) == (True, False)
    assert first.attributes == {"num_experts": 6, "spread": 1}
    assert first.linear.weight.rows_shape == (6 * 2 * 48, 32)
    assert first.linear.name == "0.gate_up"
    assert first.linear.bias is not None
    assert first.linear.output is first.linear.matmul.outputs[0]
    assert (first.weights, first.weights_of_a_row) == (6 * 96 * 32, 2 * 96 * 32)
    first.experts.shape = None
    assert first.weights_of_a_row == first.weights
    assert first_expert_matmul(model.graph) is first.linear.matmul


def test_values_of_experts_end_where_they_are_combined() -> None:
    model = expert_model(Dense(windows=(0,)))
    found = values_of_experts(model.graph)
    kinds = [node.op_type for node in model.graph if node.outputs[0] in found]
    assert kinds == ["ExpertMatMul", "Split", "Sigmoid", "Mul", "Mul", "ExpertMatMul"]


def test_the_layer_before_a_router() -> None:
    model = expert_model(Dense(windows=(0,)))
    matmuls = [node for node in model.graph if node.op_type == "MatMul"]
    assert [feeds_router(node.outputs[0]) for node in matmuls] == [False] * 4 + [True, False]


def test_others_are_none() -> None:
    nodes = """
        w = Neg (v)
        y = optc.ExpertMatMul <num_experts: int = 2, spread: int = 1> (x, e, w)"""
    signature = "g (float[T,4] x, int32[T,1] e) => (float[T,1,3] y)"
    model = model_of(signature, nodes, {"v": f32(4, 6)})
    assert [find_expert_linear(node) for node in model.graph] == [None, None]
    assert find_expert_linear(None) is None
    value = ir.Value(name="v", const_value=ir.tensor(np.zeros((4, 6), np.float32)))
    model.graph[1].replace_input_with(2, value)
    assert find_expert_linear(model.graph[1]) is None


def test_a_model_with_experts_is_refused_by_name() -> None:
    refuse_experts(dense_model(Dense()), "pass p")
    with pytest.raises(UnsupportedError, match=r"the model has them: expertmatmul") as caught:
        refuse_experts(expert_model(), "pass p")
    assert caught.value.where == "pass p"
