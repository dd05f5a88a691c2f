"""Parts of a model as models of their own."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.proof.reference.submodel import SubModel, extract, open_session, run_session, weight_array
from tests.support.experts.models import Experts, expert_model
from tests.support.ir_text import f32, model_of
from tests.support.models import Dense
from tests.support.ragged import run

SIGNATURE = "g (float[S,48] x) => (float[S,40] y)"
NODES = """
    c = Neg (bias)
    a = Tanh (x)
    b = MatMul (a, w)
    y = Add (b, c)"""
WEIGHTS = {"w": f32(48, 40), "bias": f32(40)}


def part_of(model: ir.Model, first: int) -> SubModel:
    nodes = list(model.graph)[first:]
    given = nodes[0].inputs[0]
    assert given is not None
    return extract(model, nodes, [given], [nodes[-1].outputs[0]])


def test_a_part_computes_what_the_whole_does() -> None:
    model = model_of(SIGNATURE, NODES, WEIGHTS)
    x = f32(3, 48)
    part = part_of(model, 2)
    assert [value.name for value in part.model.graph.inputs] == ["a", "w"]
    assert list(part.model.graph.initializers) == ["bias"], "what is small lies inside"
    feeds = part.feeds()
    assert feeds["w"].shape == (48, 40)
    (found,) = run_session(open_session(part.model, 1), {**feeds, "a": np.tanh(x)})
    np.testing.assert_allclose(found, run(model, {"x": x})[0], rtol=1e-5, atol=1e-5)


def test_weights_of_experts_are_taken_by_columns() -> None:
    model = expert_model(Dense(windows=(0,)), Experts(bias=True))
    node = next(n for n in model.graph if n.op_type == "ExpertMatMul")
    part = extract(model, [node], node.inputs[:2], node.outputs)
    assert [n.op_type for n in part.model.graph] == ["ExpertMatMul"]
    feeds = part.feeds()
    assert feeds["0.gate_up"].shape == (32, 6 * 96)
    assert feeds["0.gate_up"].flags["C_CONTIGUOUS"]
    for name, array in feeds.items():
        value = model.graph.initializers[name].const_value
        assert value is not None
        np.testing.assert_array_equal(array, value.numpy())


def test_what_a_part_is_not_given_is_named() -> None:
    model = model_of(SIGNATURE, NODES, WEIGHTS)
    nodes = list(model.graph)
    with pytest.raises(ValueError, match="the part reads a, which it is not given"):
        extract(model, nodes[2:], [model.graph.inputs[0]], [nodes[-1].outputs[0]])
    model.graph.initializers["bias"].const_value = None
    with pytest.raises(ValueError, match="initializer bias has no value"):
        part_of(model, 1)


def test_weights_are_as_the_graph_sees_them() -> None:
    value = model_of(SIGNATURE, NODES, WEIGHTS).graph.initializers["w"]
    np.testing.assert_array_equal(weight_array(value), WEIGHTS["w"])


def test_results_hold_memory_that_is_nobody_elses() -> None:
    session = open_session(model_of(SIGNATURE, NODES, WEIGHTS), 1)
    first = run_session(session, {"x": f32(3, 48)})[0]
    kept = first.copy()
    others = [run_session(session, {"x": f32(3, 48, seed=seed)})[0] for seed in range(1, 20)]
    del session
    assert not any(np.shares_memory(first, other) for other in others)
    others += [np.full_like(first, 7) for _ in range(20)]  # where freed memory would be taken
    np.testing.assert_array_equal(first, kept)


def test_a_result_is_not_the_input_that_it_equals() -> None:
    model = model_of("g (float[S,48] x) => (float[S,48] y)", "y = Identity (x)", {})
    x = f32(3, 48)
    (found,) = run_session(open_session(model, 1), {"x": x})
    assert not np.shares_memory(found, x)
    np.testing.assert_array_equal(found, x)
