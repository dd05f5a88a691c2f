"""Heads as an axis, folded into the last axis and split off again."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.heads import Heads, fold, heads_of, split
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.ragged import run


def graph(shape: str) -> tuple[ir.Model, ir.Node, ir.Value]:
    model = model_of(f"g (float[{shape}] x) => (float[{shape}] y)", "y = Tanh (x)")
    node = model.graph[0]
    return model, node, model.graph.inputs[0]


@pytest.mark.parametrize(
    ("shape", "heads"),
    [
        ("B,S,4,8", Heads(4, 8, tokens_last=False)),
        ("B,4,S,8", Heads(4, 8, tokens_last=True)),
        ("B,4,6,8", None),
        ("B,S,T,8", None),
        ("B,S,4,N", None),
        ("B,S,8", None),
    ],
)
def test_the_axis_of_a_fixed_size_is_that_of_heads(shape: str, heads: Heads | None) -> None:
    assert heads_of(graph(shape)[2]) == heads


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("B,S,4,8", "v = Reshape (x, shape_3)"),
        ("B,4,S,8", "v = Transpose <perm: ints = [0, 2, 1, 3]> (x)\nw = Reshape (v, shape_3)"),
    ],
)
def test_folding_and_splitting_give_the_value_back(shape: str, text: str) -> None:
    model, node, x = graph(shape)
    heads = heads_of(x)
    assert heads is not None
    folded = fold(node, x, heads)
    assert list(folded.shape or ()) == ["B", "S", 32]
    for value, name in zip((n.outputs[0] for n in list(model.graph)[:-1]), "vw", strict=False):
        value.name = name
    assert nodes_text(model) == expected(f"{text}\ny = Tanh (x)")
    back = split(node, folded, heads)
    assert list(back.shape or ()) == shape_of(shape)
    node.replace_input_with(0, back)
    array = f32(2, 4, 3, 8) if heads.tokens_last else f32(2, 3, 4, 8)
    np.testing.assert_allclose(run(model, {"x": array})[0], np.tanh(array), rtol=1e-5)


def shape_of(text: str) -> list[int | str]:
    return [int(part) if part.isdigit() else part for part in text.split(",")]


def test_a_node_outside_of_a_graph_is_refused() -> None:
    _, _, x = graph("B,S,4,8")
    with pytest.raises(ValueError, match="lost: node is not in a graph"):
        fold(ir.Node("", "Tanh", [], name="lost"), x, Heads(4, 8, tokens_last=False))
