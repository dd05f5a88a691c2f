"""Graph helpers: widths without shapes, unique names, replacing nodes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.graph import (
    add_initializer,
    constant_ints,
    int_initializer,
    is_constant,
    replace_node,
    width,
)
from tests.support.ir_text import f32, model_of


def test_width_follows_the_nodes() -> None:
    nodes = """
        m = MatMul (x, w)
        a, b = Split <axis: int = -1> (m, sizes)
        c = Add (row, a)
        d = Mul (b, one)
        e = Cos (d)
        u = Unsqueeze (x, axis)
        p = Mul (u, inv)
        o = Mul (u, one)
        y = Tanh (m)"""
    weights = {
        "w": f32(4, 9),
        "sizes": np.array([6, 3]),
        "row": f32(6),
        "one": f32(1),
        "inv": f32(2),
        "axis": np.array([-1]),
    }
    model = model_of("g (float[S,4] x) => (float[S,9] y)", nodes, weights)
    widths = {v.name: width(v) for node in model.graph for v in node.outputs}
    expected = {"a": 6, "b": 3, "c": 6, "d": 3, "e": 3, "m": 9, "p": 2, "y": 9}
    assert widths == {**expected, "u": None, "o": None}  # of a last axis of 1 nothing is known


def test_initializers_get_unique_names() -> None:
    graph = model_of("g (float[S,4] x) => (float[S,4] y)", "y = Tanh (x)").graph
    tensor = ir.tensor(f32(2))
    names = [add_initializer(graph, tensor, "w").name for _ in range(3)]
    assert names == ["w", "w.2", "w.3"]
    sizes = int_initializer(graph, [1, 2], "sizes")
    assert constant_ints(sizes) == [1, 2]
    assert is_constant(sizes)
    assert is_constant(None)
    assert not is_constant(graph.inputs[0])
    assert constant_ints(graph.inputs[0]) is None


def test_replacing_keeps_names_and_graph_outputs() -> None:
    graph = model_of("g (float[S,4] x) => (float[S,4] y)", "a = Tanh (x)\ny = Sin (a)").graph
    old = list(graph)
    new = ir.Node("", "Cos", [graph.inputs[0]])
    replace_node(old, [new], [old[1].outputs[0]], new.outputs)
    assert list(graph) == [new]
    assert graph.outputs[0] is new.outputs[0]
    assert graph.outputs[0].name == "y"
    with pytest.raises(ValueError, match="node is in no graph"):
        replace_node([old[0]], [], [], [])
