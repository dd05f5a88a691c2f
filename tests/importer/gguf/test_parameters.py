"""Names, orders and offsets of GGUF tensors, against transformers' own reading of whole arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedModel

from optc.errors import UnsupportedError
from optc.importer.conversion.row_views import Shifted, Taken
from optc.importer.conversion.tensor import Tensor
from optc.importer.gguf.parameters import gguf_parameters
from tests.importer.conversion.arrays import ArrayTensor, whole

RANDOM = np.random.default_rng(0)


def on_meta(kind: str, **options: int) -> PreTrainedModel:
    config = getattr(transformers, f"{kind}Config")(**options)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def arrays(**shapes: tuple[int, ...]) -> dict[str, Tensor]:
    named = {name.replace("__", "."): shape for name, shape in shapes.items()}
    return {
        name: ArrayTensor(name, RANDOM.standard_normal(shape).astype(np.float32))
        for name, shape in named.items()
    }


SMALL = {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2}


def test_rows_of_queries_and_keys_are_put_back() -> None:
    model = on_meta("Llama", hidden_size=32, **SMALL)
    tensors = arrays(blk__0__attn_q__weight=(32, 8), blk__0__attn_k__weight=(16, 8), strange=(2, 2))
    found = gguf_parameters(tensors, model, "llama")
    assert set(found) == {
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "strange",
    }
    for part, heads in (("q", 4), ("k", 2)):
        stored = whole(tensors[f"blk.0.attn_{part}.weight"])
        expected = stored.reshape(heads, -1, 2, 8).swapaxes(1, 2).reshape(stored.shape)
        view = found[f"model.layers.0.self_attn.{part}_proj.weight"]
        np.testing.assert_array_equal(whole(view), expected)
        np.testing.assert_array_equal(view.read_box(((3, 9), (2, 5))), expected[3:9, 2:5])


def test_norms_that_hold_one_more_are_lowered() -> None:
    model = on_meta("Gemma2", hidden_size=32, head_dim=8, **SMALL)
    tensors = arrays(blk__0__attn_norm__weight=(32,), blk__0__ffn_down__weight=(32, 8))
    found = gguf_parameters(tensors, model, "gemma2")
    norm = found["model.layers.0.input_layernorm.weight"]
    np.testing.assert_array_equal(whole(norm), whole(tensors["blk.0.attn_norm.weight"]) - 1)
    down = found["model.layers.0.mlp.down_proj.weight"]
    np.testing.assert_array_equal(whole(down), whole(tensors["blk.0.ffn_down.weight"]))


def test_gate_and_up_of_experts_are_one_parameter() -> None:
    model = on_meta("Qwen3Moe", num_experts=3, **SMALL)
    tensors = arrays(
        blk__0__ffn_up_exps__weight=(3, 6, 8),
        blk__0__ffn_gate_exps__weight=(3, 6, 8),
        blk__0__ffn_down_exps__weight=(3, 8, 6),
    )
    found = gguf_parameters(tensors, model, "qwen3moe")
    gate, up = (whole(tensors[f"blk.0.ffn_{part}_exps.weight"]) for part in ("gate", "up"))
    view = found["model.layers.0.mlp.experts.gate_up_proj"]
    np.testing.assert_array_equal(whole(view), np.concatenate([gate, up], axis=1))
    assert found["model.layers.0.mlp.experts.down_proj"].shape == (3, 8, 6)


def test_weights_by_columns_are_exchanged() -> None:
    model = on_meta("GPT2", n_layer=1, n_embd=8, n_head=2)
    tensors = arrays(blk__0__attn_qkv__weight=(24, 8))
    found = gguf_parameters(tensors, model, "gpt2")["transformer.h.0.attn.c_attn.weight"]
    np.testing.assert_array_equal(whole(found), whole(tensors["blk.0.attn_qkv.weight"]).T)


def test_what_is_no_order_of_rows_is_refused() -> None:
    model = on_meta("Bloom", n_layer=1, hidden_size=8, n_head=2)
    with pytest.raises(UnsupportedError, match=r"blk\.0\.attn_qkv\.weight: transformers computes"):
        gguf_parameters(arrays(blk__0__attn_qkv__weight=(24, 8)), model, "bloom")
    with pytest.raises(UnsupportedError, match="Unknown gguf model_type: biogpt"):
        gguf_parameters({}, on_meta("BioGpt", num_hidden_layers=1), "biogpt")


def test_views_of_rows() -> None:
    tensor = ArrayTensor("t", RANDOM.standard_normal((4, 3)).astype(np.float32))
    taken = Taken("v", tensor, np.array([2, 0, 3]))
    assert taken.shape == (3, 3)
    np.testing.assert_array_equal(taken.read_box(((1, 3), (0, 2))), tensor.array[[0, 3], :2])
    shifted = Shifted("v", tensor, -1.0)
    np.testing.assert_array_equal(shifted.read_rows(1, 2), tensor.array[1:2] - 1)
    assert taken.given is None
    assert shifted.given is None
