"""Write a Llama or a mixture of experts as GGUF with bfloat16 weights, then let llama.cpp quantize
it.

Runs in llama.cpp's environment: ``HF_FOLDER OUTPUT_FOLDER FORMAT…`` (BF16, Q8_0, Q4_0, Q4_K_M…).
No vocabulary is written unless `write` is given one: the benchmark feeds token ids. llama.cpp
rotates neighbouring pairs of a Llama, so rows of q and k are reordered from the half-split order of
the checkpoint. Experts of a checkpoint like Qwen3-30B-A3B's are stacked; those of one like
gpt-oss-20b's are turned, and their gates taken from between the ups.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np

LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
}
#: GGUF's architecture by the checkpoint's type of model.
ARCHITECTURES = {"llama": "llama", "qwen3_moe": "qwen3moe", "gpt_oss": "gpt-oss"}
#: Where gpt-oss's names are others.
GPT_OSS = {
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.sinks": "attn_sinks.weight",
    "mlp.router.weight": "ffn_gate_inp.weight",
    "mlp.router.bias": "ffn_gate_inp.bias",
}
#: Weights that llama.cpp wants in float32, beside all vectors.
_FLOAT32 = ("mlp.gate.weight", "mlp.router.weight")
_EXPERT = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate|up|down)_proj\.weight")
_STACK = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up|down)_proj(_bias)?")


def tensors(folder: Path) -> dict[str, Any]:
    """All bfloat16 tensors of the checkpoint as memory-mapped uint16 arrays by name."""
    found: dict[str, Any] = {}
    for shard in sorted(folder.glob("*.safetensors")):
        raw = np.memmap(shard, dtype=np.uint8, mode="r")
        size = int(raw[:8].view(np.uint64)[0])
        for name, entry in json.loads(bytes(raw[8 : 8 + size])).items():
            if name == "__metadata__":
                continue
            if entry["dtype"] != "BF16":
                raise SystemExit(f"{shard.name}: {name} is {entry['dtype']}, expected BF16")
            start, stop = (8 + size + o for o in entry["data_offsets"])
            found[name] = raw[start:stop].view(np.uint16).reshape(entry["shape"])
    return found


def interleave(rows: Any, heads: int) -> Any:
    """Rows [heads * d, K] from half-split to neighbouring-pair order within each head."""
    split = rows.reshape(heads, 2, -1, rows.shape[1])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(rows.shape)


def target_name(name: str, architecture: str = "llama") -> str:
    """GGUF's name of a checkpoint tensor."""
    if name.startswith("model.layers."):
        index, rest = name.removeprefix("model.layers.").split(".", 1)
        own = GPT_OSS.get(rest) if architecture == "gpt-oss" else None
        if own is None and rest.endswith(".bias"):
            own = LAYER[rest.replace(".bias", ".weight")].replace(".weight", ".bias")
        return f"blk.{index}.{own or LAYER[rest]}"
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    return names[name]


def rope_factors(config: dict[str, Any]) -> Any:
    """Frequency divisors [head_dim / 2] of llama3 rope scaling, or None."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if scaling.get("rope_type") != "llama3":
        return None
    base = scaling.get("rope_theta") or config["rope_theta"]
    dim = config["head_dim"]
    frequency = 1.0 / base ** (np.arange(0, dim, 2, dtype=np.float64) / dim)
    factor, low, high = (scaling[k] for k in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = scaling["original_max_position_embeddings"] * frequency / (2 * np.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)


def write(
    folder: Path, path: Path, add_vocabulary: Callable[[gguf.GGUFWriter], None] | None = None
) -> None:
    """Write ``folder`` to the GGUF file ``path``; without ``add_vocabulary`` it has none."""
    config = json.loads((folder / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, architecture)
    _describe(writer, config)
    if add_vocabulary is None:
        writer.add_tokenizer_model("no_vocab")
    else:
        add_vocabulary(writer)
    factors = rope_factors(config)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    found = tensors(folder)
    for name, array in found.items():
        if _EXPERT.fullmatch(name) or _STACK.fullmatch(name):
            continue
        target = target_name(name, architecture)
        if array.ndim == 1 or name.endswith(_FLOAT32):
            writer.add_tensor(target, widen(array))
            continue
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            array = interleave(array, heads if "q_proj" in name else kv_heads)
        _add(writer, target, array)
    for name, stack in stacked_experts(found):
        _add(writer, name, stack)
    for name, stack in turned_experts(found):
        if name.endswith("bias"):
            writer.add_tensor(name, widen(stack))
        else:
            _add(writer, name, stack)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def widen(bits: Any) -> Any:
    """bfloat16 bits as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _describe(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """Write what config.json says."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(scaling.get("rope_theta") or config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    if "num_experts" in config:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if config["model_type"] == "gpt_oss":
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["intermediate_size"])
        writer.add_sliding_window(config["sliding_window"])
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])


def stacked_experts(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """GGUF's name and the weights [E, N, K] of each layer's gates, ups and downs."""
    parts: defaultdict[str, dict[int, Any]] = defaultdict(dict)
    for name, array in found.items():
        match = _EXPERT.fullmatch(name)
        if match is not None:
            parts[f"blk.{match[1]}.ffn_{match[3]}_exps.weight"][int(match[2])] = array
    for name, experts in parts.items():
        yield name, np.stack([experts[index] for index in range(len(experts))])


def turned_experts(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """GGUF's name and the weights [E, N, K] or biases [E, N] of gpt-oss's experts, which lie as
    [E, K, N], a gate and its up side by side."""
    for name, array in found.items():
        match = _STACK.fullmatch(name)
        if match is None:
            continue
        kind = "bias" if match[3] else "weight"
        parts = {"down": array}
        if match[2] == "gate_up":
            parts = {"gate": array[..., ::2], "up": array[..., 1::2]}
        for part, stack in parts.items():
            turned = stack if kind == "bias" else stack.swapaxes(1, 2)
            yield f"blk.{match[1]}.ffn_{part}_exps.{kind}", np.ascontiguousarray(turned)


def _add(writer: gguf.GGUFWriter, name: str, array: Any) -> None:
    """Write bfloat16 bits [..., K]."""
    writer.add_tensor(
        name,
        array.view(np.uint8),
        raw_shape=(*array.shape[:-1], array.shape[-1] * 2),
        raw_dtype=gguf.GGMLQuantizationType.BF16,
    )


def quantize(base: Path, path: Path, name: str, imatrix: Any = None) -> None:
    """Let llama.cpp write ``base`` in the format ``name``; F32 dequantizes.

    ``imatrix``: a ctypes array of ``llama_model_imatrix_data`` that ends with an empty one.
    """
    import llama_cpp as lc  # writing alone needs gguf alone

    options = lc.llama_model_quantize_default_params()
    kind = "ALL" if name == "F32" else "MOSTLY"
    options.ftype = getattr(lc, f"LLAMA_FTYPE_{kind}_{name}")
    options.allow_requantize = name == "F32"
    if imatrix is not None:
        options.imatrix = imatrix
    if lc.llama_model_quantize(str(base).encode(), str(path).encode(), options):
        raise SystemExit(f"llama.cpp could not quantize {base} to {name}")


def main() -> None:
    source, output, formats = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    output.mkdir(parents=True, exist_ok=True)
    base = output / "BF16.gguf"
    if not base.exists():
        write(source, base)
    for name in formats:
        path = output / f"{name}.gguf"
        if path.exists():
            continue
        quantize(base, path, name)


if __name__ == "__main__":
    main()
