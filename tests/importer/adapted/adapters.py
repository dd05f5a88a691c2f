"""Tiny models and adapters of them, saved as PEFT saves them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

from tests.importer.decoders import VOCABULARY, build, config_of, save

Model = transformers.PreTrainedModel


def llama(**options: Any) -> Model:
    """Two layers with their own head, unless ``options`` say otherwise."""
    return build(config_of("Llama", num_hidden_layers=2, **options))


def gpt2() -> Model:
    """A model of layers whose weights are [K, N]."""
    sizes = {"n_embd": 48, "n_layer": 1, "n_head": 4, "vocab_size": VOCABULARY}
    return build(transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2))


def more_tokens(model: Model) -> None:
    """Give the model five tokens more, as for those of a chat."""
    model.resize_token_embeddings(VOCABULARY + 5, mean_resizing=False)


def trained(
    model: Model, folder: Path, change: Callable[[Model], None] | None = None, **options: Any
) -> PeftModel:
    """An adapter as of a training, saved as ``adapter`` in ``folder``, and its base as ``base``.

    Args:
        model: The base.
        folder: Where to.
        change: Done to the base before it is adapted, and not saved with it.
        **options: Of `peft.LoraConfig`.
    """
    save(model, folder / "base")
    base = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "base", attn_implementation="eager"
    )
    if change is not None:
        change(base)
    adapted = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **{"r": 4, **options}))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    adapted.eval().save_pretrained(folder / "adapter")
    return adapted  # type: ignore[return-value]
