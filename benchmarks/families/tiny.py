"""Configurations of a type's own class, shrunk: every size small, every kind of layer kept.

Sizes are known by the names that families use for them (`_SIZES`). A list that holds one entry a
layer says which kinds of layers a model mixes: layers are chosen so that every kind is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import CONFIG_MAPPING, PretrainedConfig

#: Layers of a tiny model, if its kinds do not need more.
LAYERS = 2
MOST_LAYERS = 6
VOCABULARY = 160
CONTEXT = 128
#: Shorter than the sequences that are compared.
WINDOW = 8
HIDDEN = 64
_SMALL = 16

_SIZES: dict[int, tuple[str, ...]] = {
    HIDDEN: (
        *("hidden_size", "n_embd", "d_model", "emb_dim", "embedding_dim", "embedding_size"),
        *("word_embed_proj_dim", "lru_width", "input_embedding_size", "output_embedding_size"),
        *("attention_hidden_size", "backbone_hidden_size", "mamba_d_ssm"),
    ),
    4: (
        *("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads"),
        *("encoder_attention_heads", "attention_heads", "num_decoder_attention_heads"),
        *("num_encoder_attention_heads", "swa_num_attention_heads", "index_n_heads"),
        *("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"),
        *("mamba_n_heads", "linear_num_value_heads", "linear_num_heads"),
        *("num_mem_blocks", "zero_expert_num", "index_topk"),
    ),
    2: (
        *("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads"),
        *("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"),
        *("n_group", "num_expert_group", "linear_num_key_heads", "n_groups", "mamba_n_groups"),
        *("num_codebooks", "mamba_expand", "hc_mult"),
    ),
    1: ("topk_group", "num_shared_experts", "n_shared_experts", "moe_num_shared_experts"),
    _SMALL: (
        *("head_dim", "swa_head_dim", "kv_channels", "dim_head", "attention_head_dim", "d_head"),
        *("v_head_dim", "index_head_dim", "linear_key_head_dim", "linear_value_head_dim"),
        *("linear_head_dim", "global_head_dim", "mamba_d_head", "mamba_head_dim", "laurel_rank"),
        *("mamba_d_state", "state_size", "ssm_state_size", "hidden_size_per_layer_input"),
        *("adapter_rank", "o_lora_rank", "d_rel"),
    ),
    24: ("qk_nope_head_dim",),
    32: (
        *("kv_lora_rank", "q_lora_rank", "moe_intermediate_size", "router_hidden_size"),
        *("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"),
        *("expert_ffn_hidden_size", "shared_experts_intermediate_size"),
    ),
    96: (
        *("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "decoder_ffn_dim"),
        *("encoder_ffn_dim", "dff", "dim_ff", "dense_intermediate_size", "intermediate_size_mlp"),
        *("shared_intermediate_size", "feed_forward_size", "d_inner"),
    ),
    VOCABULARY: ("vocab_size", "decoder_vocab_size", "vocab_size_per_layer_input"),
    CONTEXT: (
        *("max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len"),
        *("model_max_length", "context_length", "max_source_positions", "max_target_positions"),
    ),
    WINDOW: (  # 8, and so are
        *("qk_rope_head_dim", "rotary_dim"),
        *("sliding_window", "window_size", "attention_window_size", "local_attention"),
        *("sliding_window_size", "attention_chunk_size", "local_attention_window_len"),
        "floor_scale",
    ),
}
SIZES = {name: size for size, names in _SIZES.items() for name in names}
#: A number of layers, by the names that families use.
LAYER_COUNTS = (
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"),
    *("encoder_layers", "num_decoder_layers", "num_encoder_layers"),
)
#: A number of last layers that take keys and values of earlier ones.
_SHARED = "num_kv_shared_layers"
#: Ids of tokens lie within the vocabulary.
_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

#: Gemma 4 with all that its sizes mix: the last layers share the keys of earlier ones.
_GEMMA_4 = {
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "per_layer_config": {},
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
    "enable_moe_block": True,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 32,
}

#: What a type needs beside: its sizes hang together in ways of their own.
_OWN: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {  # which has no rotary options of its own
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]}
            for kind in ("full_attention", "sliding_attention")
        }
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 1e4},
        "ffn_config": {"hidden_size": HIDDEN, "ffn_hidden_size": 96, "moe_top_k": 2},
    },
    "deepseek_v2": {
        "topk_method": "group_limited_greedy",
        "topk_group": 1,
        "n_group": 2,
        "num_experts_per_tok": 2,
    },
    "diffllama": {"num_key_value_heads": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "bloom": {"seq_length": CONTEXT},
    "bamba": {"mamba_d_head": 32},
    "granitemoehybrid": {
        "mamba_d_head": 32,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "mamba2": {"num_heads": 8},
    "zamba2": {"attention_hidden_size": 2 * HIDDEN, "attention_head_dim": 32},
    "gemma4": {"text_config": _GEMMA_4},
    "gemma4_text": _GEMMA_4,
    "gemma3n_text": {"vocab_size_per_layer_input": VOCABULARY - 8},  # of more tokens, none
    "gpt_neo": {
        "attention_types": [[["global", "local"], 2]],
        "attention_layers": ["global", "local"] * 2,
        "num_layers": 4,
        "num_heads": 4,
    },
    "gpt_neox_japanese": {"intermediate_multiple_size": 2},
    "gptj": {"rotary_dim": 8},
    "codegen": {"rotary_dim": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_hidden_layers": 4},
    "dory": {  # attention and MLP count as two layers
        "num_hidden_layers": 12,
        "layer_types": ["sliding_attention", "mlp", "full_attention", "mlp"] * 3,
        **dict.fromkeys(("n_input_layers", "n_recurrent_layers", "n_output_layers"), 4),
    },
    "dots3_note": {"text_config": {"num_key_value_heads": 4}},
    "dots3_note_text": {"num_key_value_heads": 4},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "lfm2": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "lfm2_moe": {
        "layer_types": ["conv", "full_attention", "conv"],
        "num_hidden_layers": 3,
        "num_dense_layers": 1,
    },
    "ministral": {"head_dim": 16},
    "nemotron": {"num_key_value_heads": 2},
    "mpt": {"attn_config": {"alibi": True}},
    "phi3": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
}


def tiny_config(kind: str) -> PretrainedConfig:
    """The configuration of a type at tiny size.

    Args:
        kind: Its ``model_type``.
    """
    return shrunk(CONFIG_MAPPING[kind], _OWN.get(kind, {}))


def shrunk(config: type[PretrainedConfig], own: dict[str, Any]) -> PretrainedConfig:
    """A configuration of a class with all of `SIZES`, its sub-configurations likewise."""
    default = config()
    return config(**_merged(_changes(default), own))


def _merged(changes: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """``own`` before ``changes``, in sub-configurations too."""
    merged = dict(changes)
    for key, value in own.items():
        inner = merged.get(key)
        if isinstance(inner, dict) and isinstance(value, dict):
            merged[key] = _merged(inner, value)
        else:
            merged[key] = value
    return merged


def _changes(default: PretrainedConfig) -> dict[str, Any]:
    values = {k: v for k, v in default.to_dict().items() if v is not None}
    changes: dict[str, Any] = {}
    for key, value in values.items():
        inner = vars(default).get(key)
        if isinstance(inner, PretrainedConfig):
            changes[key] = _changes(inner)
        elif key == "rope_parameters":
            changes[key] = _shorter(value)
        elif key in _IDS:
            changes[key] = _IDS[key]
        elif key.endswith(("_token_id", "_token_index")) and isinstance(value, int):
            changes[key] = 3
        elif key in SIZES and isinstance(value, int) and not isinstance(value, bool):
            changes[key] = min(value, SIZES[key]) if SIZES[key] <= 2 else SIZES[key]
    return _latent(values, changes) | _layers(values)


def _latent(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Sizes that hang together in multi-head latent attention: a head dimension that is the rotary
    one's alone, and as many heads of keys as of queries."""
    if "kv_lora_rank" not in changes:
        return changes
    if values.get("head_dim") == values.get("qk_rope_head_dim"):
        changes["head_dim"] = changes["qk_rope_head_dim"]
    if values.get("num_key_value_heads") == values.get("num_attention_heads"):
        changes["num_key_value_heads"] = changes["num_attention_heads"]
    return changes


def _shorter(rope: dict[str, Any]) -> dict[str, Any]:
    """Rotary options whose trained context is within the tiny one."""
    changed = {k: _shorter(v) if isinstance(v, dict) else v for k, v in rope.items()}
    if "original_max_position_embeddings" in changed:
        changed["original_max_position_embeddings"] = CONTEXT // 2
    return changed


def _layers(values: dict[str, Any]) -> dict[str, Any]:
    """Number of layers, and every list of one entry a layer cut to the layers that are kept."""
    counts = {k: v for k, v in values.items() if k in LAYER_COUNTS and isinstance(v, int)}
    if not counts:
        return {}
    layers = max(counts.values())
    own = layers - values.get(_SHARED, 0)
    lists = {k: v for k, v in values.items() if isinstance(v, list) and len(v) == layers > 1}
    kinds = [*zip(*lists.values(), [index < own for index in range(layers)], strict=True)]
    kept = chosen_layers(kinds) if lists else [*range(LAYERS)]
    cut = {key: [_sized(key, value[index]) for index in kept] for key, value in lists.items()}
    if own < layers:
        counts[_SHARED] = sum(index >= own for index in kept)
    return {key: min(len(kept), max(count, 1)) for key, count in counts.items()} | cut


def _sized(key: str, value: Any) -> Any:
    """A layer's entry of a list, which may be one of `SIZES`."""
    return SIZES[key] if key in SIZES and type(value) is int else value


def chosen_layers(kinds: Sequence[tuple[Any, ...]]) -> list[int]:
    """Layers, ascending, such that each kind is there at least once, `LAYERS` if there are."""
    first: dict[str, int] = {}
    for index, kind in enumerate(kinds):
        first.setdefault(repr(kind), index)
    kept = set(sorted(first.values())[:MOST_LAYERS])
    for index in range(len(kinds)):
        if len(kept) >= LAYERS:
            break
        kept.add(index)
    return sorted(kept)


def layer_kinds(config: PretrainedConfig) -> list[str]:
    """The kinds of layers that a configuration states, sorted."""
    text = config.get_text_config(decoder=True)
    stated = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or []
    return sorted({str(kind) for kind in stated})


def missing_kinds(kind: str, tiny: PretrainedConfig) -> list[str]:
    """Kinds of layers that the type's own configuration has and the tiny one lost."""
    whole = CONFIG_MAPPING[kind]()
    return sorted(set(layer_kinds(whole)) - set(layer_kinds(tiny)))
