"""`kv-cache` names what it cannot make ragged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from optc.compiling.recipes.recipe import load_recipe
from optc.errors import InputError, UnsupportedError
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.kv_cache.kv_cache import KVCache
from tests.support.ir_text import f32, model_of
from tests.support.models import Dense, dense_model

SIGNATURE = "g (int64[B,S] input_ids, int64[B,S] position_ids) => (float[B,S,10] logits)"


def test_unknown_kv_type_is_refused() -> None:
    with pytest.raises(InputError, match="dtype=int5 is not possible") as caught:
        KVCache(dtype="int5")
    assert caught.value.hint == "one of float32, bfloat16, float16, int8, int4"


@pytest.mark.parametrize("dtype", ["int3", "int2"])
def test_too_few_bits_are_refused_with_what_to_use(dtype: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        load_recipe("kv-int4", sets=[f"kv-cache.dtype={dtype}"])
    assert f"{dtype} KV is refused" in caught.value.message
    assert "keys and values of fewer than 4 bits lose too much" in caught.value.message
    hint = "use kv-cache.dtype=int4 with balance-keys before it, as the recipe kv-int4 does"
    assert caught.value.hint == hint
    assert "kv-cache" in caught.value.where


def test_heads_that_do_not_divide_into_pairs_of_groups_are_refused() -> None:
    model = dense_model(Dense(head_dim=48))
    with pytest.raises(UnsupportedError, match="multiples of 32, not 48") as caught:
        KVCache(dtype="int4").run(model)
    assert caught.value.hint == "kv-cache.dtype=int8 takes any"


def test_what_is_no_dense_form_is_refused() -> None:
    model = dense_model(Dense())
    model.graph.inputs[0].name = "ids"
    with pytest.raises(InputError, match="the inputs ids, position_ids are not those of the dense"):
        Pipeline((KVCache(),)).run(model)
    nodes = "h = Gather (t, input_ids)\nlogits = MatMul (h, w)"
    model = model_of(SIGNATURE, nodes, {"t": f32(10, 8), "w": f32(8, 10)})
    with pytest.raises(InputError, match="the model has no optc::Attention"):
        KVCache().requires(model)
    with pytest.raises(InputError, match="kv-cache takes the dense form, and is given an exported"):
        Pipeline((KVCache(),)).run(model)


@pytest.mark.parametrize(
    "node",
    [
        "y = Reshape (h, shape)",
        "y = Transpose (h)",
        "y = Softmax <axis: int = 1> (h)",
        "y = Unsqueeze (h, zero)",
        "y = Slice (h, zero, one, one)",
        "y = Gather <axis: int = 1> (h, zero)",
        "y = RotaryEmbedding (h, h, h)",
        "y = custom.Thing (h)",
    ],
)
def test_what_is_not_token_wise_is_named(node: str) -> None:
    nodes = f"""
        h = Gather (t, input_ids)
        {node}
        o = optc.Attention <num_heads: int = 1, kv_num_heads: int = 1, scale: float = 0.5,
                            softcap: float = 0.0, window: int = 0> (h, y, y)
        logits = MatMul (o, w)"""
    weights = {"t": f32(10, 8), "w": f32(8, 10), "shape": np.array([0, 0, -1])}
    model = model_of(SIGNATURE, nodes, {**weights, "zero": np.array([0]), "one": np.array([1])})
    model.graph[1].name = "odd"
    with pytest.raises(UnsupportedError, match=r"is not token-wise") as caught:
        KVCache().run(model)
    assert caught.value.where == "kv-cache, node odd"
    assert node.split("= ")[1].split(" ")[0].replace(".", "::") in caught.value.message


def test_unknown_widths_are_refused() -> None:
    model = dense_model(replace(Dense(), kv_heads=4))
    for node in model.graph:
        if node.op_type == "Attention":
            node.attributes["kv_num_heads"] = ir.AttrInt64("kv_num_heads", 3)
    with pytest.raises(UnsupportedError, match="width of input 1 is 32, not a multiple of 3"):
        KVCache().run(model)


def test_other_bits_of_queries_are_refused() -> None:
    with pytest.raises(InputError, match="query_bits=4 is not possible") as caught:
        KVCache(dtype="int8", query_bits=4)
    assert caught.value.hint == "8 rounds queries to int8 where pools hold int8, 0 does not"
