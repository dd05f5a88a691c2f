"""GGUF files of a checkpoint, for the quantizers of llama.cpp and its kin.

Formats of blocks of 256 cannot store rows of another multiple: the quantizer takes another format
for such a tensor. Besides the file as it comes, those formats are therefore written from rows in
pairs: two rows of 384 are one of 768, each with its own importance. No engine could run that file;
its bits and its error are those that the format has where it fits.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np

# Of the repository, not of the environment.
sys.path.insert(0, str(Path(__file__).parents[4]))
from benchmarks.peers import to_gguf

BLOCK = 256


def add_vocabulary(folder: Path, writer: gguf.GGUFWriter) -> None:
    """The byte-level BPE of tokenizer.json, which llama-imatrix reads the text with."""
    content = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    vocabulary = content["model"]["vocab"] | {
        t["content"]: t["id"] for t in content["added_tokens"]
    }
    special = {t["id"] for t in content["added_tokens"]}
    by_id = {number: token for token, number in vocabulary.items()}
    count = config["vocab_size"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in content["model"]["merges"]]
    kinds = [gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL
             for i in range(count)]  # fmt: skip
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("dbrx")  # this model's splitting, and merges are not skipped
    writer.add_token_list([by_id.get(i, f"<unused {i}>") for i in range(count)])
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)


def paired_importances(base: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Importances of a file that `write_pairs` makes of ``base``."""
    paired = {t.name for t in gguf.GGUFReader(base).tensors if is_paired(t.shape.tolist())}
    return {name: np.tile(one, 2) if name in paired else one for name, one in values.items()}


def write_pairs(base: Path, path: Path) -> None:
    """``base`` with two rows in one wherever that makes rows of whole blocks."""
    reader = gguf.GGUFReader(base)
    writer = gguf.GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, inner)
    for one in reader.tensors:
        data = one.data
        if is_paired(one.shape.tolist()):
            data = data.reshape(data.shape[0] // 2, -1)
        writer.add_tensor(one.name, data, raw_dtype=one.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def is_paired(shape: list[int]) -> bool:
    """True if a matrix, GGUF's shape [K, N], has blocks of 256 only with its rows in pairs."""
    return len(shape) == 2 and shape[0] % BLOCK != 0 and 2 * shape[0] % BLOCK == 0


def source_names(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """GGUF's names: the checkpoint's and its shape."""
    return {
        to_gguf.target_name(name): (name, array.shape)
        for name, array in to_gguf.tensors(folder).items()
    }


def read_weights(folder: Path, path: Path) -> dict[str, Any]:
    """Float32 weights by the checkpoint's names, of a file whose types the gguf package knows."""
    config = json.loads((folder / "config.json").read_text())
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    names = source_names(folder)
    weights: dict[str, Any] = {}
    for one in gguf.GGUFReader(path).tensors:
        name, shape = names[one.name]
        rows = gguf.dequantize(one.data, one.tensor_type).astype(np.float32).reshape(shape)
        for kind, count in heads.items():
            if kind in name:
                pairs = rows.reshape(count, -1, 2, shape[1])
                rows = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(shape)
        weights[name] = rows
    return weights


def read_stored(folder: Path, path: Path) -> dict[str, list[Any]]:
    """Values, bytes and type of each tensor by the checkpoint's names.

    Bytes are those up to the next tensor: some types have scales of rows beside their blocks. A
    tensor of which the file pads the end counts at most 31 too many.
    """
    names = source_names(folder)
    tensors = sorted(gguf.GGUFReader(path).tensors, key=lambda one: one.data_offset)
    ends = [*(one.data_offset for one in tensors[1:]), path.stat().st_size]
    return {
        names[one.name][0]: [int(np.prod(one.shape)), int(end - one.data_offset),
                             one.tensor_type.name]
        for one, end in zip(tensors, ends, strict=True)
    }  # fmt: skip
