"""Tiny transformers decoders with weights large enough to matter, saved as people publish them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime
import torch
import transformers

Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]

VOCABULARY = 97
#: Longer than every window below.
TOKENS = 30

BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def config_of(kind: str, **options: Any) -> transformers.PretrainedConfig:
    """The config class called ``{kind}Config`` at tiny size."""
    return getattr(transformers, f"{kind}Config")(**{**BASE, **options})


def build(config: transformers.PretrainedConfig, seed: int = 0) -> transformers.PreTrainedModel:
    """The decoder in float32 with seeded random weights, eager attention."""
    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            scale = 0.3 if parameter.ndim == 2 else 0.2
            values = torch.randn(parameter.shape, generator=generator) * scale
            # Gemma's norms add the one themselves
            one = "norm" in name and name.endswith("weight") and "gemma" not in config.model_type
            parameter.copy_(values + float(one))
    return model


def save(
    model: transformers.PreTrainedModel,
    folder: Path,
    dtype: torch.dtype = torch.float32,
    **how: Any,
) -> Path:
    """Save ``model`` in ``dtype``; afterwards its own weights are the rounded ones."""
    transformers.utils.logging.disable_progress_bar()
    copy.deepcopy(model).to(dtype).save_pretrained(folder, **how)
    with torch.no_grad():  # not model.to(dtype), which would round the rotary frequencies too
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype))
    return folder


def tokens(seed: int = 0) -> Int64:
    """Two prompts [2, TOKENS]."""
    return np.random.default_rng(seed).integers(3, VOCABULARY, (2, TOKENS))


def reference(model: transformers.PreTrainedModel, ids: Int64) -> Float32:
    """What transformers says: [B, S, V]."""
    with torch.no_grad():
        return model(input_ids=torch.from_numpy(ids)).logits.numpy()


def run(model: ir.Model, ids: Int64) -> Float32:
    """What the graph says in ONNX Runtime: [B, S, V]."""
    proto = ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])
    positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
    return session.run(None, {"input_ids": ids, "position_ids": positions})[0]


def error(found: Float32, expected: Float32) -> float:
    """Largest difference relative to the largest value expected."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())
