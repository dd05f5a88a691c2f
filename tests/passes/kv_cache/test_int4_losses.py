"""The loss of one layer's keys and values in int4."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from optc.ir.weights import LazyWeight
from optc.passes.kv_cache import int4_losses as module
from optc.passes.kv_cache.int4_losses import attentions_of, int4_losses
from tests.support.models import Dense, dense_model
from tests.support.oracle import represented

SHAPE = Dense(hidden=64, heads=2, kv_heads=2, head_dim=32, inner=64, windows=(0, 0, 0))
TOKENS = np.random.default_rng(0).integers(0, 10, (2, 24), np.int32)


@pytest.mark.parametrize(("heads", "dim"), [(1, 32), (2, 16), (3, 64)])
def test_what_is_represented_is_what_pools_hold(heads: int, dim: int) -> None:
    x = ir.Value(
        name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["B", "S", heads * dim])
    )
    graph = ir.Graph([x], [], nodes=[], opset_imports={"": 23, module._DOMAIN: 1}, name="g")
    model = ir.Model(graph, ir_version=10)
    overload = module._ensure_function(model, heads)
    node = ir.Node(module._DOMAIN, module._FUNCTION, [x], overload=overload)
    node.outputs[0].name, node.outputs[0].type = "y", x.type
    graph.append(node)
    graph.outputs.append(node.outputs[0])
    rng = np.random.default_rng(heads)
    rows = rng.standard_t(3, (2, 5, heads * dim)).astype(np.float32)
    rows[0, 0] = 0
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    (found,) = session.run(None, {"x": rows})
    wanted = represented(rows.reshape(2, 5, heads, dim), "int4").reshape(rows.shape)
    np.testing.assert_array_equal(found, wanted)


def test_keys_and_values_of_one_attention_are_switched() -> None:
    model = dense_model(SHAPE)
    second = attentions_of(model)[1]
    queries, keys, values = second.inputs[:3]
    first, other = module._add_switches(model, second)
    assert second.inputs[0] is queries
    assert keys is not None
    assert values is not None
    for read, x, switch in zip(second.inputs[1:3], (keys, values), (first, other), strict=True):
        assert read is not None
        add = read.producer()
        assert add is not None
        assert add.op_type == "Add"
        assert add.inputs[0] is x
        times = add.inputs[1].producer()
        assert times is not None
        assert times.inputs[1] is switch
    for node in (attentions_of(model)[0], attentions_of(model)[2]):
        assert all(v.producer().op_type != "Add" for v in node.inputs[1:3] if v and v.producer())


def test_a_layer_without_keys_and_values_loses_nothing() -> None:
    model = dense_model(SHAPE)
    _silence(model, 1)
    before = [(node.op_type, [v.name for v in node.inputs if v]) for node in model.graph]
    losses = int4_losses(model, TOKENS, [0, 1, 2])
    assert losses[1] == pytest.approx(0, abs=1e-9)
    assert min(losses[0], losses[2]) > 1e-7
    assert int4_losses(model, TOKENS, [2]) == pytest.approx([losses[2]])
    assert [(n.op_type, [v.name for v in n.inputs if v]) for n in model.graph] == before


def _silence(model: ir.Model, layer: int) -> None:
    """Make the projections of a layer's keys and values zero."""
    for value in attentions_of(model)[layer].inputs[1:3]:
        node = value.producer() if value is not None else None
        while node is not None and node.op_type != "MatMul":
            source = node.inputs[0]
            node = source.producer() if source is not None else None
        assert node is not None
        weight = node.inputs[1]
        assert weight is not None
        shape = weight.const_value.shape.numpy()  # type: ignore[union-attr]
        rows = np.zeros(shape[::-1], np.float32)
        weight.const_value = LazyWeight(
            lambda start, stop, rows=rows: rows[start:stop],
            rows.shape,
            ir.DataType.FLOAT,
            "zero",
            transposed=True,
        )
