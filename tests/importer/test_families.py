"""Every family, imported and canonicalized, against transformers itself."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from optc.importer.import_model import import_model
from optc.passes.canonicalize import Canonicalize
from tests.importer.decoders import build, config_of, error, reference, run, save, tokens

#: float32 rounding of a tiny decoder; measured errors are below 5e-6.
TOLERANCE = 2e-5
HEAD = {"head_dim": 16}
GEMMA2 = {**HEAD, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}


def rope(kind: str, **options: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, **options}}


@dataclass(frozen=True)
class Family:
    """One configuration.

    Attributes:
        kind: The config class without its suffix.
        options: What differs from the base.
        matters: Options that must change the logits when set to these values, else the
            comparison would not show that they are honoured.
        context: Longest sequence that the import must allow.
    """

    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    matters: dict[str, Any] = field(default_factory=dict)
    context: int = 128


#: Heads and rotary embeddings of Llama's kind vary together: what breaks either shows in both.
FAMILIES = {
    "llama-llama3": Family(
        "Llama",
        {
            **HEAD,
            **rope(
                "llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
        },
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    ),
    "smollm-linear": Family(
        "Llama",
        {
            "hidden_size": 72,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "tie_word_embeddings": True,
            **rope("linear", factor=4.0),
        },
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        context=512,
    ),
    "llama-mqa-bias-yarn": Family(
        "Llama",
        {
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "attention_bias": True,
            "mlp_bias": True,
            **rope("yarn", factor=4.0, original_max_position_embeddings=32),
        },
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    ),
    "llama-mha-odd-dynamic": Family(
        "Llama",
        {
            "hidden_size": 40,
            "num_attention_heads": 5,
            "num_key_value_heads": 5,
            **rope("dynamic", factor=4.0),
        },
    ),
    "mistral": Family("Mistral", {**HEAD, "sliding_window": 8}, {"sliding_window": None}),
    "qwen2": Family("Qwen2"),
    "qwen3": Family("Qwen3", HEAD),
    "smollm3": Family("SmolLM3", {"no_rope_layers": [0]}, {"no_rope_layers": [1]}),
    "gemma2": Family(
        "Gemma2",
        {
            **GEMMA2,
            "num_hidden_layers": 2,
            "sliding_window": 8,
            "query_pre_attn_scalar": 16,
        },
        {
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
            "sliding_window": 64,
            "query_pre_attn_scalar": 32,
        },
    ),
    "gemma3": Family(
        "Gemma3Text",
        {
            **HEAD,
            "num_hidden_layers": 2,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            "query_pre_attn_scalar": 16,
        },
        {
            "sliding_window": 64,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 1e4},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "embeddings of layers, shared keys, factors of experts": Family(
        "Gemma4Text",
        {
            **HEAD,
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "per_layer_config": {},
            "num_kv_shared_layers": 1,
            "sliding_window": 8,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 97,
            "enable_moe_block": True,
            "num_experts": 4,
            "top_k_experts": 2,
            "moe_intermediate_size": 16,
        },
        {"sliding_window": 64},
    ),
    "phi3": Family(
        "Phi3",
        {"partial_rotary_factor": 0.5, "sliding_window": 8},
        {"sliding_window": None},
    ),
    "phi3-longrope": Family(
        "Phi3",
        {
            "original_max_position_embeddings": 32,
            **rope(
                "longrope",
                short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
                long_factor=[2.0, 2.1, 2.2, 2.3, 2.4, 2.5],
                original_max_position_embeddings=32,
            ),
        },
        context=32,
    ),
    "olmo2": Family("Olmo2"),
    "stablelm": Family("StableLm", {"partial_rotary_factor": 0.5, "use_qkv_bias": True}),
    "starcoder2": Family("Starcoder2", {"sliding_window": 8}, {"sliding_window": None}),
    "gpt-neo": Family(  # attention of its own, whose windows are tables
        "GPTNeo",
        {
            "num_hidden_layers": 2,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 8,
        },
        {"window_size": 64},
    ),
    "flat tokens, learned positions": Family("GPT2", {"n_positions": 128}),
    "positions behind an offset": Family("OPT", {"ffn_dim": 80, "word_embed_proj_dim": 48}),
    "neighbours turn": Family("Glm", {**HEAD, "attention_bias": True}),
    "the other way, norms behind": Family("NanoChat", HEAD),
    "a factor a token": Family(
        "Ministral3",
        {
            **HEAD,
            **rope(
                "yarn",
                factor=2.0,
                original_max_position_embeddings=64,
                llama_4_scaling_beta=0.5,
                max_position_embeddings=8,
            ),
        },
    ),
    "choices and stored buffers": Family("Apertus", {**HEAD, "hidden_act": "xielu"}),
    "1 + scale, squared relu": Family("Nemotron", {"partial_rotary_factor": 0.5}),
    "streams, sparse gates, a smaller table": Family(
        "Gemma3nText",
        {
            **HEAD,
            "num_hidden_layers": 2,
            "num_kv_shared_layers": 1,
            "layer_types": ["sliding_attention"] * 2,
            "sliding_window": 8,
            "activation_sparsity_pattern": [0.9, 0.0],
            "altup_num_inputs": 3,
            "altup_active_idx": 1,
            "laurel_rank": 8,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 90,
        },
        {"activation_sparsity_pattern": [0.0, 0.0], "sliding_window": 64},
    ),
    "layers that are passed again": Family(
        "HrmText", {"num_hidden_layers": 1, "H_cycles": 1, "L_cycles": 1}
    ),
}


#: Whose engines are compared with transformers end to end, or that have only what others have.
LONG = (
    *("qwen2", "olmo2", "flat tokens, learned positions", "choices and stored buffers"),
    "layers that are passed again",
)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] if n in LONG else []) for n in FAMILIES]
)
def test_family_agrees_with_transformers(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    model = build(config_of(family.kind, **family.options))
    imported = import_model(save(model, tmp_path / name))
    assert imported.max_context == family.context
    limited = family.options.get("rope_parameters", {}).get("rope_type") in ("dynamic", "longrope")
    assert any(f"up to {family.context} tokens" in w for w in imported.warnings) == limited
    canonicalize = Canonicalize()
    canonicalize.requires(imported.model)
    canonicalize.run(imported.model)
    canonicalize.ensures(imported.model)
    expected = reference(model, tokens())
    assert error(run(imported.model, tokens()), expected) < TOLERANCE
    for option, value in family.matters.items():
        assert _changes(model, option, value, expected), f"{option} does not matter here"


def _changes(model: transformers.PreTrainedModel, option: str, value: Any, expected: Any) -> bool:
    """True if the same weights give other logits with ``option`` at ``value``."""
    config = copy.deepcopy(model.config)
    setattr(config, option, value)
    other = type(model)._from_config(config, attn_implementation="eager").eval()
    other.load_state_dict(model.state_dict())
    return error(reference(other, tokens()), expected) > 50 * TOLERANCE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_shards_are_widened_exactly(dtype: torch.dtype, tmp_path: Path) -> None:
    model = build(config_of("Llama", tie_word_embeddings=True))
    folder = save(model, tmp_path / "sharded", dtype, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    imported = import_model(folder)
    Canonicalize().run(imported.model)
    assert error(run(imported.model, tokens()), reference(model, tokens())) < TOLERANCE
