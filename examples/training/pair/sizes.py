"""What the two models are."""

from __future__ import annotations

from typing import Any

MODELS: dict[str, dict[str, int]] = {
    # hidden sizes are multiples of 128 so that every common quantisation group fits
    "target": {
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 64,
    },
    "draft": {
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
    },
}
COMMON = {
    "vocab_size": 4096,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
}


def config_of(name: str) -> dict[str, Any]:
    """Sizes under the names of transformers' LlamaConfig."""
    return {**COMMON, **MODELS[name]}
