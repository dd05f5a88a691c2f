"""`cast-weights`: bfloat16 linear layers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.weights import LazyWeight
from optc.passes.quantize.cast_weights import CastWeights
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.models import Dense, dense_model
from tests.support.ragged import run

SIGNATURE = "g (float[S,8] x) => (float[S,5] y)"
NODES = "h0 = MatMul (x, w)\nh = Add (h0, b)\ny = MatMul (h, head)"


def test_text_and_numbers() -> None:
    model = model_of(SIGNATURE, NODES, {"w": f32(8, 8), "b": f32(8), "head": f32(8, 5)})
    assert CastWeights().run(model).details == {"bfloat16": 2}
    assert nodes_text(model) == expected(
        """
        h = optc.Bf16MatMul (x, w.bfloat16, b)
        y = optc.Bf16MatMul (h, head.bfloat16)"""
    )

    def rounded(x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return x.astype(ml_dtypes.bfloat16).astype(np.float32)

    x = f32(3, 8)
    hidden = rounded(x) @ rounded(f32(8, 8)) + f32(8)
    want = rounded(hidden) @ rounded(f32(8, 5))
    np.testing.assert_allclose(run(model, {"x": x})[0], want, rtol=1e-2, atol=1e-2)
    tensor = model.graph.initializers["w.bfloat16"].const_value
    assert isinstance(tensor, LazyWeight)
    assert tensor.dtype.name == "BFLOAT16"
    assert tensor.read_rows(2, 5).dtype == ml_dtypes.bfloat16


def test_the_head_may_stay() -> None:
    model = dense_model(Dense())
    report = CastWeights(head=False).run(model)
    assert report.details == {"bfloat16": 14, "embedding bfloat16": 1}
    assert report.skipped == ["matmul_15: the head stays float32 (head=false)"]


def test_a_tied_embedding_shares_the_head() -> None:
    model = dense_model(Dense(tied=True))
    report = CastWeights().run(model)
    assert report.details == {"bfloat16": 15, "embedding shares the head": 1}
    lookup = nodes_text(model).splitlines()[0]
    assert lookup == "gather_out = optc.Bf16Gather (input_ids, head.weight.bfloat16)"
    assert not any(name.startswith("embed") for name in model.graph.initializers)


def test_an_untied_embedding_is_widened_after_the_lookup() -> None:
    before = dense_model(Dense())
    model = dense_model(Dense())
    CastWeights().run(model)
    assert (
        nodes_text(model).splitlines()[:2]
        == expected(
            """
        val_0 = Gather <axis = 0> (embed.weight.bfloat16, input_ids)
        gather_out = Cast <to = 1> (val_0)"""
        ).splitlines()
    )
    table = before.graph.initializers["embed.weight"].const_value
    cast = model.graph.initializers["embed.weight.bfloat16"].const_value
    assert table is not None
    assert cast is not None
    np.testing.assert_array_equal(cast.numpy(), table.numpy().astype(ml_dtypes.bfloat16))


def test_options_leave_embeddings_alone() -> None:
    model = dense_model(Dense(tied=True))
    assert CastWeights(head=False).run(model).skipped == [
        "matmul_15: the head stays float32 (head=false)",
        "gather: the tied head stays float32, so the embedding does too",
    ]
    model = dense_model(Dense(tied=True))
    assert CastWeights(embedding=False).run(model).details == {"bfloat16": 15}
    assert nodes_text(model).splitlines()[0].startswith("gather_out = Gather")


def test_other_types_are_refused() -> None:
    with pytest.raises(InputError, match=r"dtype=float16 is not possible \(the only type is"):
        CastWeights(dtype="float16")


def test_other_lookups_do_not_hide_the_table() -> None:
    model = dense_model(Dense())
    first = model.graph[0]
    assert first.op_type == "Gather"
    ids = model.graph.inputs[0]
    axis = ir.Value(name="three", const_value=ir.tensor(np.array([3], np.int64)))
    model.graph.register_initializer(axis)
    other = ir.Node("", "Gather", [axis, ids], name="other")
    model.graph.insert_before(first, other)
    assert CastWeights().run(model).details["embedding bfloat16"] == 1


def test_the_middle_layers_are_cast_where_the_head_comes_first_and_stays() -> None:
    nodes = "y = MatMul (x, head)\nh = MatMul (x, w)\nz = Tanh (h)"
    signature = "g (float[S,8] x) => (float[S,5] y, float[S,8] z)"
    model = model_of(signature, nodes, {"w": f32(8, 8), "head": f32(8, 5)})
    report = CastWeights(head=False).run(model)
    assert (report.details, len(report.skipped)) == ({"bfloat16": 1}, 1)
