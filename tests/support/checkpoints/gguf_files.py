"""Writes model folders as GGUF files, as converters of llama.cpp do, with ggml's quantizers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Kind
from gguf import quants

from optc.importer.checkpoint import checkpoint_files, read_checkpoint

Float32 = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
#: Blocks of a weight of K columns: ``K -> type``.
KindOf = Callable[[str, int], Kind]


def of_kind(kind: Kind, fallback: Kind = Kind.Q5_0, table: Kind = Kind.Q8_0) -> KindOf:
    """Matrices in one type; another where its blocks do not divide the rows, or of the table."""
    size = gguf.GGML_QUANT_SIZES[kind][0]

    def choose(name: str, columns: int) -> Kind:
        if name in ("token_embd.weight", "output.weight"):
            return table
        return kind if columns % size == 0 else fallback

    return choose


def quantized(rows: Float32, kind: Kind) -> Bytes:
    """Rows in blocks of a type."""
    return q4_k(rows) if kind == Kind.Q4_K else quants.quantize(rows, kind)


def q4_k(rows: Float32) -> Bytes:
    """Rows [n, K] in Q4_K: 8 groups of 32 with 6-bit scales and minimums in blocks of 256."""
    x = rows.reshape(-1, 8, 32)
    low = np.minimum(x.min(axis=2), 0)
    step = (x.max(axis=2) - low) / 15
    d, dmin = (
        np.maximum(part.max(axis=1, keepdims=True) / 63, 1e-7).astype(np.float16)
        for part in (step, -low)
    )
    scales = np.rint(step / d.astype(np.float32)).clip(0, 63).astype(np.uint8)
    mins = np.rint(-low / dmin.astype(np.float32)).clip(0, 63).astype(np.uint8)
    wide = (d.astype(np.float32) * scales)[:, :, None]
    offset = (dmin.astype(np.float32) * mins)[:, :, None]
    q = np.rint((x + offset) / np.where(wide == 0, 1, wide)).clip(0, 15).astype(np.uint8)
    packed = np.concatenate(
        [
            scales[:, :4] | (scales[:, 4:] >> 4 << 6),
            mins[:, :4] | (mins[:, 4:] >> 4 << 6),
            (scales[:, 4:] & 15) | (mins[:, 4:] << 4),
        ],
        axis=1,
    )
    pairs = (q[:, 0::2] | (q[:, 1::2] << 4)).reshape(len(x), 128)
    blocks = np.concatenate([d.view(np.uint8), dmin.view(np.uint8), packed, pairs], axis=1)
    return blocks.reshape(len(rows), -1)


def permuted(rows: Float32, heads: int) -> Float32:
    """Rows of q or k for rotary pairs that lie side by side, as converters write them."""
    shape = (heads, 2, len(rows) // heads // 2, *rows.shape[1:])
    return rows.reshape(shape).swapaxes(1, 2).reshape(rows.shape)


def write_llama(
    folder: Path, file: Path, kind_of: KindOf, extra: Mapping[str, Float32] | None = None
) -> Path:
    """The Llama-like model of ``folder`` as a GGUF file, tokenizer included."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])
    if (folder / "tokenizer.json").is_file():
        _add_tokenizer(writer, folder, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    for name, tensor in read_checkpoint(checkpoint_files(folder)).items():
        rows = tensor.read_rows(0, tensor.shape[0])
        for part, count in heads.items():
            rows = permuted(rows, config[count]) if part in name else rows
        stem, _, suffix = name.rpartition(".")
        _add(writer, f"{names.get_name(stem)}.{suffix}", rows, kind_of)
    for name, rows in (extra or {}).items():
        writer.add_tensor(name, rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _add(writer: Any, name: str, rows: Float32, kind_of: KindOf) -> None:
    if rows.ndim == 1:
        writer.add_tensor(name, np.ascontiguousarray(rows))
        return
    kind = kind_of(name, rows.shape[1])
    blocks = quantized(np.ascontiguousarray(rows), kind)
    writer.add_tensor(name, blocks, raw_dtype=kind)


def _add_tokenizer(writer: Any, folder: Path, config: Mapping[str, Any]) -> None:
    model = json.loads((folder / "tokenizer.json").read_text())
    special = {one["content"] for one in model["added_tokens"]}
    vocabulary = {**model["model"]["vocab"]}
    vocabulary |= {one["content"]: one["id"] for one in model["added_tokens"]}
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in special else normal for token in tokens])
    merges = model["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(True)
