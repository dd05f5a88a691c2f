"""Shapes that model families have, and tiny models of them behind passes."""

from __future__ import annotations

import onnx_ir as ir

from tests.support.models import Dense, dense_model
from tests.support.pipelines import pipeline_of

#: The passes up to a fused step in float32.
FUSED = "fuse-qkv,fuse-gate-up,kv-cache,fuse-residual-norm,fuse-rotary"
FAMILIES = {
    "llama": Dense(tied=True),
    "qwen2": Dense(qkv_bias=True, kv_heads=4, tied=True),
    "qwen3": Dense(qk_norm=True, heads=3, kv_heads=1),
    "gemma2": Dense(
        windows=(5, 0, 20),
        softcap=3.0,
        logit_softcap=2.0,
        qkv_bias=True,
        post_norms=True,
        activation="gelu_tanh",
    ),
    "mistral": Dense(windows=(6, 6)),
    "phi3": Dense(fused=True, rotary_dim=4),
    "no positions": Dense(rotary_dim=0),
    "olmo2": Dense(wide_qk_norm=True, pre_norms=False, post_norms=True),
    "stablelm": Dense(layer_norms=True, rotary_dim=4),
    "starcoder2": Dense(
        layer_norms=True,
        gated=False,
        mlp_bias=True,
        qkv_bias=True,
        tied=True,
        windows=(6, 6),
        activation="gelu_tanh",
    ),
    "sinks": Dense(sinks=True, windows=(6, 0), qkv_bias=True),
    "alibi": Dense(alibi=True, rotary_dim=0, layer_norms=True, gated=False),
    "chunks": Dense(chunks=(0, 8)),
    "shared keys": Dense(windows=(0, 0, 0), shared_kv=1, qk_norm=True),
    "latents": Dense(latent=16, heads=4, kv_heads=4, head_dim=12, rotary_dim=4),
    #: narrow and even enough that the cache can hold them (`latent-kv`)
    "kept_latents": Dense(latent=24, heads=4, kv_heads=4, head_dim=24, rotary_dim=8),
    "short convolutions": Dense(windows=(0, 0, 0), convolutions=(3, 0, 4), qk_norm=True),
    "recurrences": Dense(windows=(0, 0, 0), recurrences=("delta", "", "plain")),
    "embeddings of layers": Dense(layer_inputs=8, tied=True),
}


def model_after(spec: str, shape: Dense) -> ir.Model:
    """The seeded model of a shape, behind the passes of ``spec``."""
    model = dense_model(shape)
    pipeline_of(spec).run(model)
    return model
