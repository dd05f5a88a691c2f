"""config.json and generation settings out of a GGUF file's metadata, by transformers' tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers.modeling_gguf_pytorch_utils import (
    GGUF_TO_TRANSFORMERS_MAPPING,
    load_gguf_checkpoint,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from optc.errors import InputError, UnsupportedError
from optc.importer.gguf.file import open_gguf
from optc.system.foreign.errors import foreign_errors

ARCHITECTURE = "general.architecture"
#: What the importer reads beside transformers' tables, by architecture.
_READ_HERE = {
    "llama": ("expert_count", "expert_used_count"),
    "qwen3moe": ("expert_feed_forward_length",),
}
_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
#: What says nothing that the shapes of the tensors, or the file's other keys, do not say.
_KNOWN = frozenset(
    {
        "attention.key_length",
        "attention.value_length",
        "rope.dimension_count",
        "rope.scaling.attn_factor",
        "rope.scaling.factor",
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",
        "rope.scaling.type",
        "vocab_size",
    }
)


def read_gguf_config(file: Path, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the model in ``file`` as its config.json would have it.

    Args:
        file: The GGUF file.
        metadata: Its metadata by key.

    Raises:
        UnsupportedError: transformers does not know the architecture, or no decoder of it, or the
            rotary scaling has no equivalent.
        InputError: The metadata is damaged.
    """
    where = str(file)
    open_gguf(file)  # with our words where it is damaged
    with foreign_errors(where, "the metadata is not complete", "download it again"):
        return _config(file, metadata, where)


def _config(file: Path, metadata: Mapping[str, Any], where: str) -> dict[str, Any]:
    try:
        config = dict(load_gguf_checkpoint(str(file))["config"])
    except (ValueError, NotImplementedError) as error:
        raise UnsupportedError(
            f"transformers does not take it: {error}",
            where=where,
            hint="compile the model's folder with safetensors instead",
        ) from error
    config.pop("_model_name_or_path", None)
    config |= _experts(config.get("model_type"), metadata, where)
    kind = config.get("model_type")
    names = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(str(kind))
    if names is None:
        raise UnsupportedError(f"{kind} is no decoder-only language model", where=where)
    config["architectures"] = [names if isinstance(names, str) else names[0]]
    config |= _rope_scaling(metadata, where)
    for key in ("bos_token_id", "padding_token_id"):
        token = metadata.get(f"tokenizer.ggml.{key}")
        if token is not None:
            config[key.replace("padding", "pad")] = int(token)
    if ends := end_tokens(metadata):
        config["eos_token_id"] = ends[0]
    return config


def end_tokens(metadata: Mapping[str, Any]) -> list[int]:
    """Tokens that end a text or a turn."""
    found = (metadata.get(f"tokenizer.ggml.{key}") for key in _ENDS)
    return list(dict.fromkeys(int(token) for token in found if token is not None))


def unread_keys(metadata: Mapping[str, Any]) -> list[str]:
    """Keys about the model, not its tokenizer, that transformers' tables have no place for."""
    architecture = str(metadata.get(ARCHITECTURE, ""))
    tables = GGUF_TO_TRANSFORMERS_MAPPING["config"]
    known = set().union(*(tables.get(name, {}) for name in (architecture, _spelled(architecture))))
    prefix = f"{architecture}."
    names = (key.removeprefix(prefix) for key in metadata if key.startswith(prefix))
    return sorted(set(names) - known - _KNOWN - set(_READ_HERE.get(architecture, ())))


def _spelled(architecture: str) -> str:
    """The name of an architecture in transformers' tables where it differs by underscores only."""
    tables = GGUF_TO_TRANSFORMERS_MAPPING["config"]
    plain = architecture.replace("-", "").replace("_", "")
    return next((name for name in tables if name.replace("_", "") == plain), architecture)


def _experts(kind: Any, metadata: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Entries of the config about experts that transformers' tables lack: a llama with experts is a
    mixtral, and experts of qwen3 have a width of their own."""
    prefix = metadata.get(ARCHITECTURE)
    count = metadata.get(f"{prefix}.expert_count")
    width = metadata.get(f"{prefix}.expert_feed_forward_length")
    if kind == "llama" and count:
        used = metadata.get(f"{prefix}.expert_used_count")
        if not used:
            raise InputError(f"{count} experts, and none of them is used", where=where)
        return {
            "model_type": "mixtral",
            "num_local_experts": int(count),
            "num_experts_per_tok": int(used),
        }
    if kind == "qwen3_moe" and width:
        return {"moe_intermediate_size": int(width)}
    return {}


def _rope_scaling(metadata: Mapping[str, Any], where: str) -> dict[str, Any]:
    """``rope_scaling`` of the config; empty where there is none, or where transformers reads it."""
    architecture = metadata.get(ARCHITECTURE)

    def key(name: str) -> Any:
        return metadata.get(f"{architecture}.rope.scaling.{name}")

    kind = key("type")
    if kind in (None, "none"):
        return {}
    scaling = {"rope_type": kind, "factor": key("factor")}
    if kind == "yarn":
        scaling["original_max_position_embeddings"] = key("original_context_length")
    if kind not in ("linear", "yarn") or None in scaling.values():
        raise UnsupportedError(
            f"rotary scaling of type {kind!r}, or without its factor", where=where
        )
    return {"rope_scaling": scaling}
