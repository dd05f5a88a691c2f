"""A config as the settings of a GGUF file: transformers' table of what a reader takes, inverted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig, PretrainedConfig
from transformers.modeling_gguf_pytorch_utils import GGUF_TO_TRANSFORMERS_MAPPING

from optc.compiling.export.gguf.rotary import add_scaling, rope_of, stated_settings
from optc.errors import UnsupportedError
from optc.importer.gguf.config import read_gguf_config
from optc.importer.gguf.file import metadata_of, open_gguf
from optc.system.scratch import Scratch

if TYPE_CHECKING:
    from gguf import GGUFWriter

#: Keys of a config that say nothing of what the model computes, or that the tensors say.
_SAID_ELSEWHERE = frozenset(
    {
        "_name_or_path",
        "architectures",
        "dtype",
        "initializer_range",
        "max_window_layers",
        "output_router_logits",
        "pretraining_tp",
        "router_aux_loss_coef",
        "router_jitter_noise",
        "tie_word_embeddings",
        "torch_dtype",
        "transformers_version",
        "use_cache",
        "attention_dropout",
    }
)
#: How names of tokens end, which are the tokenizer's there.
_TOKEN = "_token_id"
_ROPE = "rope_parameters"
#: Architectures in the words of files, of types of models that have another name there.
_ARCHITECTURES = {
    "gemma3_text": "gemma3",
    "minimax_m2": "minimax-m2",
    "mixtral": "llama",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
}


def architecture_of(config: PretrainedConfig) -> str:
    """The architecture in the words of a file.

    Raises:
        UnsupportedError: transformers does not read files of this type of models.
    """
    kind = str(config.model_type)
    named = _ARCHITECTURES.get(kind, kind)
    tables = GGUF_TO_TRANSFORMERS_MAPPING["config"]
    if not tables.keys() & {kind, named}:
        raise UnsupportedError(
            f"transformers has no settings of GGUF for models of type {kind}",
            where="config of the model",
            hint="use --format hf",
        )
    return named


def add_settings(writer: GGUFWriter, architecture: str, config: PretrainedConfig) -> None:
    """Write what ``config`` says.

    Raises:
        UnsupportedError: A setting has no place in the format.
    """
    _add(writer, architecture, config)
    _check(architecture, config)


def _add(writer: GGUFWriter, architecture: str, config: PretrainedConfig) -> None:
    tables = GGUF_TO_TRANSFORMERS_MAPPING["config"]
    table = tables.get(config.model_type) or tables[architecture]
    values = {**config.to_dict(), **rope_of(config)}
    for key, name in table.items():
        value = values.get(name, getattr(config, name, None)) if name else None
        if isinstance(value, float):
            writer.add_float32(f"{architecture}.{key}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"{architecture}.{key}", value)
    width = values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"]
    writer.add_value_length(width)
    if "attention.key_length" not in table:
        writer.add_key_length(width)
    if "rope.dimension_count" not in table or table["rope.dimension_count"] is None:
        writer.add_rope_dimension_count(width)
    add_scaling(writer, rope_of(config))
    _add_experts(writer, config)


def _add_experts(writer: GGUFWriter, config: PretrainedConfig) -> None:
    """Write the settings of experts that transformers' tables lack and optc's importer reads."""
    if config.model_type == "mixtral":
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    elif config.model_type == "qwen3_moe":
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)


def _check(architecture: str, config: PretrainedConfig) -> None:
    """Read the settings back, as an import would, and compare."""
    from gguf import GGUFWriter

    with Scratch("export") as made:
        file = Path(made) / "settings.gguf"
        writer = GGUFWriter(file, architecture)
        _add(writer, architecture, config)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        read = read_gguf_config(file, metadata_of(open_gguf(file)))
    found = AutoConfig.for_model(**read)
    ours, theirs = (_compared(one) for one in (config, found))
    lost = [key for key in sorted(ours) if ours[key] != theirs.get(key)]
    if lost:
        stated = ", ".join(f"{key} = {ours[key]!r}" for key in lost)
        raise UnsupportedError(
            f"the GGUF files that optc writes cannot say {stated}",
            where="config of the model",
            hint="use --format compressed-tensors",
        )


def _compared(config: PretrainedConfig) -> dict[str, Any]:
    found = {
        key: value
        for key, value in config.to_dict().items()
        if key not in _SAID_ELSEWHERE and not key.endswith(_TOKEN)
    }
    found.pop(_ROPE, None)
    found["rope"] = {key: _short(value) for key, value in stated_settings(config).items()}
    width = found.get("head_dim") or found["hidden_size"] // found["num_attention_heads"]
    return {key: _short(value) for key, value in found.items()} | {"head_dim": width}


def _short(value: Any) -> Any:
    """Numbers as float32 keeps them."""
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value
