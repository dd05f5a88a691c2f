"""GGUF files: odd metadata and tensors, written as the format wants it, and changed bytes."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.fuzz.edits import edit_bytes, edit_json
from tests.fuzz.form import Files, Format, Materials, expect
from tests.fuzz.odd import NUMBERS

#: A file's contents as JSON, and a seed for each change of its bytes.
Described = tuple[bytes, tuple[int, ...]]

_TOKENS = ["<unk>", "<s>", "</s>", *"abcdefgh", "ab"]
_WIDTH = 32
_LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.context_length": 64,
    "llama.embedding_length": _WIDTH,
    "llama.block_count": 1,
    "llama.feed_forward_length": 32,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "default",
    "tokenizer.ggml.tokens": _TOKENS,
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 2,
}
_SPM: dict[str, Any] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.scores": [-1.0 * place for place in range(len(_TOKENS))],
    "tokenizer.ggml.token_type": [2, 3, 3, *[1] * 9],
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    "llama.rope.scaling.type": "linear",
    "llama.rope.scaling.factor": 2.0,
}
#: Tensors: the shape as the file says it, innermost first, and ggml's number of the type.
_TENSORS = [
    ["token_embd.weight", [_WIDTH, len(_TOKENS)], 0],
    ["blk.0.attn_norm.weight", [_WIDTH], 0],
    ["blk.0.attn_q.weight", [_WIDTH, _WIDTH], 1],
    ["blk.0.attn_k.weight", [_WIDTH, _WIDTH], 8],
    ["blk.0.ffn_up.weight", [_WIDTH, 32], 2],
    ["output_norm.weight", [_WIDTH], 0],
]
_KNOWN: dict[str, list[Any]] = {
    "general.architecture": ["qwen2", "gemma3", "bert", "clip", "mamba", "x\nerror: forged", 3],
    "general.alignment": [0, 1, 3, 64, -32, 2**40, "x"],
    "llama.rope.scaling.type": ["none", "yarn", "longrope", 7],
    "llama.rope.scaling.factor": list(NUMBERS),
    "llama.attention.head_count": [[2], [2, 2], 0, 3, "two"],
    "llama.expert_count": [0, 8, -1, "many"],
    "tokenizer.ggml.model": ["gpt2", "llama", "bert", "t5", "none", "gpt3", ""],
    "tokenizer.ggml.pre": ["llama-bpe", "qwen2", "x", 3],
    "tokenizer.ggml.merges": [["a zz"], ["a"], [1, 2], [""], ["a b c"], [" "]],
    "tokenizer.ggml.tokens": [[], ["a", "a"], [3], [""], _TOKENS * 3],
    "tokenizer.ggml.token_type": [[], [1], [9] * 12, ["x"]],
    "tokenizer.ggml.scores": [[], [float("nan")] * 12, ["x"]],
    "split.count": [0, 1, 2, 70000, -1, "x"],
    "split.no": [0, 1, -1],
    "split.tensors.count": [0, 1, -1],
}
_U32, _I32, _F32, _BOOL, _TEXT, _ARRAY, _U64, _I64, _F64 = 4, 5, 6, 7, 8, 9, 10, 11, 12
#: Bytes of a tensor that are written.
_MOST_BYTES = 1 << 16
#: Bytes of 32 elements of ggml's types.
_BYTES = {0: 128, 1: 64, 2: 18, 3: 20, 6: 22, 8: 34, 30: 64}


class Gguf(Format[Described]):
    """The folder that is made of a file, and the first and last rows of each of its tensors."""

    name = "gguf"

    def prepare(self, materials: Materials) -> None:
        import transformers
        from transformers import AutoTokenizer  # noqa: F401 - imported once, before the forks

        import optc.importer.gguf.config
        import optc.importer.gguf.folder
        import optc.importer.gguf.structure  # noqa: F401

        transformers.logging.set_verbosity_error()
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPTC_CACHE", str(Path(folder, "cache")))
            self._folder = Path(folder)  # what a good file makes transformers import
            self.run((json.dumps({"values": _LLAMA, "tensors": _TENSORS}).encode(), ()))

    def open(self, folder: Path) -> None:
        import os

        self._folder = folder
        os.environ["OPTC_CACHE"] = str(folder / "cache")

    def sample(self, random: Random) -> Described:
        values = random.choice((_LLAMA, {**_LLAMA, **_SPM}))
        return json.dumps({"values": values, "tensors": _TENSORS}).encode(), ()

    def edit(self, random: Random, value: Described) -> Described:
        described, seeds = value
        if random.random() < 0.4:
            return described, (*seeds, random.getrandbits(32))
        return edit_json(random, described, _KNOWN, broken=0), seeds

    def run(self, value: Described) -> None:
        from optc.importer.gguf.file import read_gguf
        from optc.importer.gguf.folder import gguf_folder, making_bytes

        shutil.rmtree(self._folder / "cache", ignore_errors=True)
        file = self._folder / "m.gguf"
        file.write_bytes(_file(value))
        expect(making_bytes(file) >= 0, "memory below zero", making_bytes(file))
        made = gguf_folder(file)
        expect((made / "config.json").is_file(), "a folder without a configuration", made)
        for tensor in read_gguf([file]).values():
            rows = tensor.shape[0] if tensor.shape else 0
            for start, stop in ((0, min(rows, 2)), (max(rows - 2, 0), rows)):
                if tensor.shape:
                    read = tensor.read_rows(start, stop)
                    expect(len(read) == stop - start, "another number of rows", tensor.name)

    def shown(self, value: Described) -> Files:
        return {"model.json": value[0], "model.gguf": _file(value)}


def _file(value: Described) -> bytes:
    described, seeds = value
    try:
        data = _written(json.loads(described))
    except (ValueError, RecursionError):
        data = described  # no description any more: a file of something else
    for seed in seeds:
        data = edit_bytes(Random(seed), data)
    return data


def _written(described: object) -> bytes:
    """A file of what is described, as far as it can be said."""
    known = described if isinstance(described, dict) else {}
    values, tensors = known.get("values"), known.get("tensors")
    pairs = list(values.items()) if isinstance(values, dict) else []
    entries = [one for one in tensors if _is_tensor(one)] if isinstance(tensors, list) else []
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(entries), len(pairs))]
    parts += [_text(name) + _typed(one) for name, one in pairs]
    at, data = 0, []
    for name, shape, kind in entries:
        sizes = b"".join(struct.pack("<Q", size % 2**64) for size in shape)
        parts.append(_text(name) + struct.pack("<I", len(shape)) + sizes)
        parts.append(struct.pack("<IQ", kind % 2**32, at))
        size = -(-_size(shape, kind) // 32) * 32
        data.append(bytes(range(256))[:size].ljust(size, b"\x01"))
        at += size
    head = b"".join(parts)
    return head + bytes(-len(head) % 32) + b"".join(data)


def _is_tensor(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and isinstance(value[0], str)
        and isinstance(value[1], list)
        and all(type(size) is int for size in value[1])
        and type(value[2]) is int
    )


def _size(shape: list[int], kind: int) -> int:
    """Bytes of a tensor's numbers, where it is not too large to be written."""
    count = 1
    for size in shape:
        count = min(count * max(size, 0), _MOST_BYTES)
    return min(count * _BYTES.get(kind, 128) // 32, _MOST_BYTES)


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(data)) + data


def _typed(value: Any) -> bytes:
    kind, data = _encoded(value)
    return struct.pack("<I", kind) + data


def _encoded(value: Any) -> tuple[int, bytes]:
    """The number of a type, and the value in it."""
    if isinstance(value, bool):
        return _BOOL, bytes([value])
    if isinstance(value, int):
        if 0 <= value < 2**32:
            return _U32, struct.pack("<I", value)
        if -(2**63) <= value < 2**63:
            return _I64, struct.pack("<q", value)
        return _U64, struct.pack("<Q", value % 2**64)
    if isinstance(value, float):
        return _F64, struct.pack("<d", value)
    if isinstance(value, list):
        kinds = [_encoded(one) for one in value]
        first = kinds[0][0] if kinds else _I32
        same = [data for kind, data in kinds if kind == first]
        return _ARRAY, struct.pack("<IQ", first, len(same)) + b"".join(same)
    return _TEXT, _text(value if isinstance(value, str) else json.dumps(value))
