"""A tiny model of a type with weights large enough to matter, and what transformers says of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel

from benchmarks.families.tiny import VOCABULARY

#: Tokens of the sequences whose logits are compared: longer than any window.
TOKENS = 30
NEW_TOKENS = 32
_PROMPTS = (7, 12)


def build(config: PretrainedConfig, seed: int = 0) -> PreTrainedModel:
    """The model in float32, weights seeded; norms stay near what the class starts them with."""
    transformers.logging.set_verbosity_error()
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim < 2:
                parameter.add_(noise * 0.1)
            else:
                parameter.copy_(noise * 1.5 * parameter.shape[-1] ** -0.5)
    return model


def save(model: PreTrainedModel, folder: Path) -> None:
    """As people publish it."""
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)


def tokens(seed: int = 0) -> npt.NDArray[np.int64]:
    """Two sequences [2, TOKENS], without the id 3, which stands for pictures in tiny models."""
    return np.random.default_rng(seed).integers(4, VOCABULARY, (2, TOKENS))


def prompts() -> list[list[int]]:
    """Beginnings that greedy tokens follow."""
    return [row[:length].tolist() for row, length in zip(tokens(), _PROMPTS, strict=True)]


def logits(model: PreTrainedModel, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """The logits [B, S, V] that transformers computes for tokens [B, S], without a cache."""
    with torch.no_grad():
        found = model(input_ids=torch.from_numpy(ids), use_cache=False).logits
    return found.float().numpy()


def greedy(model: PreTrainedModel, prompt: list[int]) -> list[int]:
    """`NEW_TOKENS` greedy tokens behind a prompt, without a cache."""
    ids = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            following = model(input_ids=ids, use_cache=False).logits[:, -1].argmax(-1)
            ids = torch.cat([ids, following[:, None]], dim=1)
    return ids[0, len(prompt) :].tolist()
