"""Batch and sequence as one axis of rows; positions and tokens in int32."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import UnsupportedError
from optc.passes.kv_cache.token_rows import collapse, narrow_to_int32
from tests.support.ir_text import expected, f32, model_of, nodes_text

SIGNATURE = "g (float[B,S,8] x, int64[B,S] ids) => (float[B,S,N] y)"
WEIGHTS = {
    "one": np.array([1]),
    "two": np.array([2]),
    "four": np.array([4]),
    "row": f32(1, 1, 8),
    "scale": f32(8),
    "table": f32(10, 8),
    "tables": f32(1, 3, 2),
}


def collapsed(nodes: str) -> ir.Model:
    model = model_of(SIGNATURE, nodes, WEIGHTS)
    collapse(model)
    return model


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = Mul (x, row)", "y = Mul (x, row.row)"),
        (
            "y = RMSNormalization <axis: int = 2> (x, scale)",
            "y = RMSNormalization <axis = -1> (x, scale)",
        ),
        ("y = Concat <axis: int = 2> (x, x)", "y = Concat <axis = -1> (x, x)"),
        ("y = Unsqueeze (ids, two)", "y = Unsqueeze (ids, last_axis)"),
        ("y = Slice (x, one, four, two)", "y = Slice (x, one, four, last_axis)"),
        ("y = Gather (table, ids)", "y = Gather (table, ids)"),
    ],
)
def test_what_is_token_wise_becomes_independent_of_the_rank(before: str, after: str) -> None:
    model = collapsed(before)
    assert nodes_text(model) == expected(after)
    constants = model.graph.initializers
    if "row.row" in constants:
        np.testing.assert_array_equal(
            constants["row.row"].const_value.numpy(), WEIGHTS["row"][0, 0]
        )
    if "last_axis" in constants:
        assert constants["last_axis"].const_value.numpy().tolist() == [-1]


def test_rotary_embedding_becomes_the_operator_of_any_rank() -> None:
    signature = "g (float[B,S,8] x, float[B,S,2] c, float[B,S,2] s) => (float[B,S,8] y)"
    model = model_of(signature, "y = RotaryEmbedding <num_heads: int = 2> (x, c, s)")
    collapse(model)
    assert nodes_text(model) == (
        "y = optc.RotaryEmbedding "
        "<num_heads = 2, rotary_embedding_dim = 4, interleaved = 0> (x, c, s)"
    )
    assert list(model.graph.outputs[0].shape or ()) == ["T", 8]


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ("y = Softmax <axis: int = 1> (x)", "Softmax"),
        ("y = Unsqueeze (x, one)", "Unsqueeze"),
        ("y = Slice (x, one, four, one)", "Slice"),
        ("y = Gather <axis: int = 1> (x, one)", "Gather"),
        ("y = RotaryEmbedding (x, tables, tables)", "RotaryEmbedding"),
        ("y = test.Own (x)", "test::Own"),
    ],
)
def test_what_is_not_token_wise_is_named(node: str, name: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        collapsed(node)
    assert caught.value.message == f"{name} is not token-wise"


@pytest.mark.parametrize(
    ("nodes", "after"),
    [
        ("y = Gather (table, ids)", "y = Gather (table, ids)"),
        (
            "u = Unsqueeze (ids, two)\ny = Cast <to: int = 1> (u)",
            "u = Unsqueeze (ids, two)\ny = Cast <to = 1> (u)",
        ),
        (
            "u = Add (ids, one)\ny = Gather (table, u)",
            "ids.wide = Cast <to = 7> (ids)\nu = Add (ids.wide, one)\ny = Gather (table, u)",
        ),
    ],
)
def test_integers_are_widened_only_before_arithmetic(nodes: str, after: str) -> None:
    model = model_of(SIGNATURE, nodes, WEIGHTS)
    ids = model.graph.inputs[1]
    narrow_to_int32(model.graph, ids)
    assert nodes_text(model) == expected(after)
    assert ids.dtype is ir.DataType.INT32
    taken = [node for node in model.graph if node.op_type == "Unsqueeze"]
    assert all(node.outputs[0].dtype is ir.DataType.INT32 for node in taken)
