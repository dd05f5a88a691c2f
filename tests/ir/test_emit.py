"""Nodes that are appended with names, types and shapes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.emit import Emitter, dims_of
from tests.support.ir_text import model_of
from tests.support.ragged import run


def test_operators_and_constants_are_named_typed_and_shaped() -> None:
    model = model_of("g (float[S,8] x) => (float[S,8] y)", "y = Tanh (x)")
    graph, tanh = model.graph, model.graph[0]
    emit = Emitter(graph, "new")
    last = emit.integers("last", [-1])
    two = emit.constant("two", np.float32(2))
    summed = emit.op("sum", "ReduceSum", [graph.inputs[0], last], ["S", 1], keepdims=1)
    doubled = emit.op("doubled", "Mul", [summed, two], None, ir.DataType.FLOAT)
    assert [node.name for node in emit.nodes] == ["new.sum", "new.doubled"]
    assert sorted(graph.initializers) == ["new.last", "new.two"]
    assert (last.dtype, two.dtype) == (ir.DataType.INT64, ir.DataType.FLOAT)
    assert (summed.name, dims_of(summed), dims_of(doubled)) == ("new.sum", ["S", 1], None)
    assert graph.num_nodes() == 1, "the caller inserts them"
    graph.insert_before(tanh, emit.nodes)
    tanh.replace_input_with(0, doubled)
    x = np.arange(8, dtype=np.float32)[None] / 50
    graph.outputs[0].shape = None
    np.testing.assert_allclose(
        run(model, {"x": x})[0], np.tanh(2 * x.sum(keepdims=True)), rtol=1e-5
    )


def test_an_operator_of_another_domain() -> None:
    model = model_of("g (float[S,8] x) => (float[S,8] y)", "y = Tanh (x)")
    emit = Emitter(model.graph, "new")
    value = emit.op("own", "Own", [None], [], ir.DataType.INT8, domain="test", size=3)
    (node,) = emit.nodes
    assert (node.domain, node.op_type, node.attributes["size"].as_int()) == ("test", "Own", 3)
    assert (value.dtype, dims_of(value)) == (ir.DataType.INT8, [])
