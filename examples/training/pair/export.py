"""A checkpoint as a Hugging Face folder."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import torch
from safetensors.torch import save_file

from .sizes import config_of

TOKENS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}


def export(options: Namespace) -> None:
    """Write bf16 safetensors, the configurations and the tokenizer to ``options.out``."""
    work, out = Path(options.work), Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    state = torch.load(work / f"{options.model}.pt", weights_only=True)
    tensors = {k: v.to(torch.bfloat16).contiguous() for k, v in state["model"].items()}
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **config_of(options.model),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "initializer_range": 0.02,
        **TOKENS,
        "pretraining_tp": 1,
        "rope_scaling": None,
        "use_cache": True,
        "torch_dtype": "bfloat16",
    }
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps(TOKENS, indent=2) + "\n")
    for file in (work / "tokenizer").iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    total = sum(tensor.numel() for tensor in tensors.values())
    print(out, f"{total} parameters, trained {state['step']} steps in {state['spent']:.0f} s")
