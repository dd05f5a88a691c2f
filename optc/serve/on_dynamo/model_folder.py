"""`write_model_folder`: the files by which Dynamo's frontend encodes, renders and decodes."""

from __future__ import annotations

import json
from pathlib import Path

from optc.runtime.engine import Engine


def write_model_folder(engine: Engine, folder: Path) -> None:
    """Write a folder as Hugging Face has it, without weights.

    Args:
        engine: Of a model with a tokenizer.
        folder: Where to; it is there.
    """
    tokenizer = engine.tokenizer
    assert tokenizer is not None
    tokenizer.backend.save(str(folder / "tokenizer.json"))
    special = dict(tokenizer.special_tokens)
    settings: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    if tokenizer.chat_template:
        settings["chat_template"] = tokenizer.chat_template
    ends = list(engine.eos_token_ids)
    tokens = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": ends}
    config = {
        "architectures": ["LlamaForCausalLM"],  # the frontend wants a name, and runs no model
        "model_type": "llama",
        "max_position_embeddings": engine.kv_plan.max_context,
        "vocab_size": engine.spec.vocab_size,
        **tokens,
    }
    for name, value in (
        ("tokenizer_config.json", settings),
        ("config.json", config),
        ("generation_config.json", tokens),
    ):
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
