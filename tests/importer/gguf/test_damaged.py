"""GGUF files with changed bytes and odd metadata: one error, or a folder."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from optc.errors import InputError, OptcError
from optc.importer.gguf.file import read_gguf
from optc.importer.gguf.folder import gguf_folder

TOKENS = ["<unk>", "<s>", "</s>", *"abcdefgh", "ab"]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path / "cache"))


def write(file: Path, change: Callable[[gguf.GGUFWriter], object] = lambda writer: None) -> Path:
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(TOKENS)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(2)
    change(writer)
    writer.add_tensor("token_embd.weight", np.zeros((len(TOKENS), 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def outcome(file: Path) -> str:
    """The result of a file; any other exception ends the test."""
    try:
        gguf_folder(file)
        read_gguf([file])
    except OptcError as error:
        return str(error)
    return ""


def test_the_file_itself_is_right(tmp_path: Path) -> None:
    assert outcome(write(tmp_path / "a.gguf")) == ""


def key(name: str, value: Any, kind: gguf.GGUFValueType, sub: Any = None) -> Callable[..., object]:
    def change(writer: gguf.GGUFWriter) -> None:
        for data in writer.kv_data:
            data.pop(name, None)
        writer.add_key_value(name, value, kind, sub)

    return change


ARRAY, INT, TEXT = gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT32, gguf.GGUFValueType.STRING


@pytest.mark.parametrize(
    "change",
    [
        key("tokenizer.ggml.merges", ["a zz"], ARRAY, TEXT),
        key("tokenizer.ggml.merges", ["a"], ARRAY, TEXT),
        key("tokenizer.ggml.merges", [1, 2], ARRAY, INT),
        key("tokenizer.ggml.tokens", ["a", "a"], ARRAY, TEXT),
        key("tokenizer.ggml.tokens", [3], ARRAY, INT),
        key("tokenizer.ggml.eos_token_id", [1, 2], ARRAY, INT),
        key("tokenizer.ggml.eos_token_id", "two", TEXT),
        key("tokenizer.ggml.bos_token_id", "one", TEXT),
        key("tokenizer.ggml.model", [3], ARRAY, INT),
        key("tokenizer.ggml.model", "gpt3", TEXT),
        key("llama.embedding_length", [32], ARRAY, INT),
        key("llama.embedding_length", "wide", TEXT),
        key("llama.attention.head_count", [2, 2, 2], ARRAY, INT),
        key("llama.rope.scaling.type", 7, INT),
        key("llama.expert_count", "many", TEXT),
        key("general.architecture", "x\nerror: forged", TEXT),
        key("general.architecture", 3, INT),
    ],
)
def test_odd_metadata_is_one_error(change: Callable[..., object], tmp_path: Path) -> None:
    said = outcome(write(tmp_path / "a.gguf", change))
    assert "\n" not in said.replace("x\nerror: forged", "")


def test_changed_bytes_are_one_error(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.gguf").read_bytes()
    # Texts that are not UTF-8, by each text of the file in turn.
    places = [whole.find(text) for text in (b"llama", b"gpt2", b"default", b"<unk>", b"a b")]
    seen = set()
    for number, place in enumerate(places):
        file = tmp_path / f"text{number}.gguf"
        file.write_bytes(whole[:place] + b"\xff" + whole[place + 1 :])
        seen.add(bool(outcome(file)))
    assert True in seen
    draw = random.Random(5)
    for number in range(60):
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            changed[draw.randrange(len(changed) - 12 * 32 * 4)] = draw.randrange(256)
        file = tmp_path / f"bytes{number}.gguf"
        file.write_bytes(changed)
        outcome(file)


@pytest.mark.parametrize("shape", [(0, 12), (32, 0), (0,), (32, 12, 0)])
def test_a_tensor_of_no_values_is_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    file = write(tmp_path / "a.gguf")
    name = struct.pack("<Q", 17) + b"token_embd.weight"
    begin = file.read_bytes().index(name)
    data = bytearray(file.read_bytes())
    told = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    end = begin + len(name) + 4 + 2 * 8  # of the two axes that it has
    data[begin + len(name) : end] = told
    data += bytes(64)  # what the shorter or longer header moves stays in the file
    file.write_bytes(data)
    with pytest.raises(InputError, match="the tensor does not fit the file") as caught:
        read_gguf([file])
    assert "token_embd.weight" in caught.value.where
