"""Configurations at tiny size keep every kind of layer."""

from __future__ import annotations

import pytest
import transformers

from benchmarks.families.tiny import (
    HIDDEN,
    SIZES,
    VOCABULARY,
    chosen_layers,
    layer_kinds,
    missing_kinds,
    shrunk,
    tiny_config,
)


def test_layers_are_chosen_so_that_every_kind_is_there() -> None:
    kinds = [("a", 1)] * 5 + [("b", 1)] + [("a", 1)] * 5 + [("b", 0)]
    assert chosen_layers(kinds) == [0, 5, 11]
    assert chosen_layers([("a",)] * 9) == [0, 1]


def test_a_model_of_several_kinds() -> None:
    config = tiny_config("gemma3_text")
    assert layer_kinds(config) == ["full_attention", "sliding_attention"]
    assert missing_kinds("gemma3_text", config) == []
    assert len(config.layer_types) == config.num_hidden_layers == 2


def test_layers_that_take_keys_of_earlier_ones_and_those_that_do_not() -> None:
    config = tiny_config("gemma3n_text")
    shared = config.num_kv_shared_layers
    assert 0 < shared < config.num_hidden_layers
    assert set(config.layer_types[-shared:]) == set(config.layer_types[:-shared])
    assert config.kv_sharing_modes.count("reuse") == shared
    assert 0 in config.activation_sparsity_pattern
    assert any(config.activation_sparsity_pattern)
    assert set(config.intermediate_size) == {SIZES["intermediate_size"]}
    assert config.vocab_size_per_layer_input < config.vocab_size


def test_sub_configurations_are_shrunk_too() -> None:
    config = tiny_config("gemma3")
    assert config.text_config.hidden_size == config.vision_config.hidden_size == HIDDEN


def test_what_is_asked_for_goes_before() -> None:
    config = shrunk(transformers.LlamaConfig, {"hidden_size": 32})
    assert (config.hidden_size, config.vocab_size, config.num_key_value_heads) == (
        32,
        VOCABULARY,
        2,
    )
    assert missing_kinds("llama", config) == []


def test_a_lost_kind_is_told() -> None:
    config = transformers.Gemma3TextConfig(num_hidden_layers=1, layer_types=["sliding_attention"])
    assert missing_kinds("gemma3_text", config) == ["full_attention"]


def test_rotary_parts_of_heads_are_small() -> None:
    assert SIZES["qk_rope_head_dim"] == SIZES["rotary_dim"] == SIZES["sliding_window"] == 8


@pytest.mark.parametrize("kind", ["deepseek_v3", "glm4_moe_lite", "minicpm3", "youtu"])
def test_sizes_of_latent_attention_hang_together(kind: str) -> None:
    config = tiny_config(kind)
    assert config.num_key_value_heads == config.num_attention_heads == 4
    assert config.head_dim == config.qk_rope_head_dim == 8
