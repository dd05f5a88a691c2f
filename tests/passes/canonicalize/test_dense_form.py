"""What the dense form has, and what is said of a graph that is not in it."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import UnsupportedError
from optc.passes.canonicalize.dataflow import MISS
from optc.passes.canonicalize.dense_form import check_dense_form
from tests.support.ir_text import f32, model_of
from tests.support.models import Dense, dense_model

SIGNATURE = "g (float[B,S,8] x) => (float[B,S,N] y)"
WEIGHTS = {"w": f32(8, 8), "two": np.array([2]), "nul": np.array([0]), "last": np.array([-1])}


@pytest.mark.parametrize(
    "shape",
    [Dense(), Dense(qk_norm=True, fused=True), Dense(layer_norms=True, gated=False)],
    ids=["separate", "fused", "layer norms"],
)
def test_a_dense_model_is_taken(shape: Dense) -> None:
    check_dense_form(dense_model(shape))


@pytest.mark.parametrize(
    ("nodes", "node", "reason"),
    [
        ("y = MatMul (x, x)", "MatMul", "a product of two computed values is not a linear layer"),
        ("y = TopK (x, two)", "TopK", "not an operator of the dense form"),
        ("y = test.Own (x)", "Own", "an operator of domain test"),
        (
            "y, s = optc.QuantizeActivation (x)",
            "QuantizeActivation",
            "an operator that belongs to later stages",
        ),
        (
            "y = Gather <axis: int = 1> (x, two)",
            "Gather",
            "rows gathered along axis 1 are not a lookup of tokens",
        ),
        ("y = Concat <axis: int = 1> (x, x)", "Concat", "Concat along another axis than the last"),
        ("y = Slice (x, nul, two, two)", "Slice", "it slices another axis than the last"),
    ],
)
def test_what_is_not_of_the_dense_form_is_named(nodes: str, node: str, reason: str) -> None:
    model = model_of(SIGNATURE, nodes, WEIGHTS)
    if node == "Slice":  # the sizes are what tells
        model.graph[0].outputs[0].shape = model.graph.inputs[0].shape.__class__(["B", "T", 8])  # type: ignore[union-attr]
    elif node in ("Gather", "Concat"):
        model.graph[0].outputs[0].shape = model.graph.inputs[0].shape
    with pytest.raises(UnsupportedError) as caught:
        check_dense_form(model)
    assert caught.value.message == reason
    assert caught.value.where.endswith(f"({node})")
    assert "follows no pattern" in caught.value.hint


def test_an_axis_of_heads_is_told_with_its_shape() -> None:
    model = model_of("g (float[B,S,4,8] x) => (float[B,S,4,8] y)", "y = Tanh (x)")
    with pytest.raises(UnsupportedError, match=r"\['B', 'S', 4, 8\] with an axis of heads is left"):
        check_dense_form(model)


def test_the_miss_that_is_nearest_is_told_and_arithmetic_on_shapes_is_not_blamed() -> None:
    nodes = """
        n = Size (x)
        t = Tanh (x)
        s = TopK (t, two)
        y = Tanh (s)"""
    model = model_of(SIGNATURE, nodes, WEIGHTS)
    by_type = {node.op_type: node for node in model.graph}
    by_type["Size"].outputs[0].dtype = by_type["TopK"].inputs[1].dtype  # type: ignore[union-attr]
    by_type["Size"].outputs[0].shape = by_type["TopK"].inputs[1].shape.__class__([])  # type: ignore[union-attr]
    list(model.graph)[1].meta[MISS] = "it is round"
    with pytest.raises(UnsupportedError) as caught:
        check_dense_form(model)
    assert caught.value.message == "not an operator of the dense form; nearest: : it is round"
    assert "TopK" in caught.value.where
