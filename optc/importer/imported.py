"""`ImportedModel`: what importing gives to the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir


@dataclass(frozen=True)
class ImportedModel:
    """A model's graph, its configuration and the files that travel with it.

    Attributes:
        model: The graph, ``input_ids, position_ids i64[B, S] -> logits f32[B, S, V]``; its
            initializers are lazy.
        config: The parsed config.json.
        family: The config's ``model_type``, e.g. ``llama``.
        name: The folder's name, or of a snapshot in the Hugging Face cache ``owner/name``.
        folder: Where the model was read from.
        source_digest: sha256 (hex) over config.json and every safetensors file.
        tokenizer_files: Tokenizer, chat template and generation settings, sorted by name.
        warnings: What the user should know, one sentence each.
        max_context: Longest sequence in tokens that the graph is right for.
    """

    model: ir.Model
    config: dict[str, Any]
    family: str
    name: str
    folder: Path
    source_digest: str
    tokenizer_files: list[Path]
    warnings: list[str]
    max_context: int
