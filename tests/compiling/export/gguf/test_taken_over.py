"""Tokenizers that are taken over from another file are there as that file has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import pytest

from optc import registry
from optc.artifact.artifact import Artifact
from optc.compiling.export.export import export_artifact
from optc.errors import InputError
from tests.compiling.export.conftest import Made

#: Of a tokenizer for which optc writes no settings of its own.
OTHERS = {"tokenizer.ggml.pre": "smollm", "tokenizer.ggml.model": "llama"}


@pytest.fixture
def qwen(kinds: dict[str, Made], monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr(registry, "backend", {"toy": kinds["qwen2"].backend}.__getitem__)
    return kinds["qwen2"]


def tokens_of(artifact: Artifact) -> list[str]:
    file = artifact.tokenizer_file()
    assert file is not None
    read = json.loads(file.read_text())
    found = {index: token for token, index in read["model"]["vocab"].items()}
    found |= {one["id"]: one["content"] for one in read["added_tokens"]}
    return [found[index] for index in range(len(found))]


def write(file: Path, tokens: list[str]) -> Path:
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(64)
    for key, value in OTHERS.items():
        writer.add_string(key, value)
    if tokens:
        writer.add_token_list(tokens)
        writer.add_token_scores([-float(index) for index in range(len(tokens))])
        writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_bos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(True)
    writer.add_chat_template("{{ messages }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.mark.parametrize("longest", [4096, 8])
def test_every_key_of_a_tokenizer(
    longest: int, qwen: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long lists are read from the bytes of the file."""
    monkeypatch.setattr("optc.importer.gguf.reader._LONGEST_LIST", longest)
    tokens = tokens_of(qwen.artifact)
    other = write(tmp_path / "other.gguf", tokens)
    export_artifact(qwen.artifact, "gguf", tmp_path / "m.gguf", tokenizer_from=other)
    found, wanted = (gguf.GGUFReader(file).fields for file in (tmp_path / "m.gguf", other))
    names = [name for name in wanted if name.startswith("tokenizer.")]
    assert len(names) == 9
    names.remove("tokenizer.chat_template")  # the artifact has one of its own
    for name in names:
        assert found[name].types == wanted[name].types, name
        assert found[name].contents() == wanted[name].contents(), name
    assert found["tokenizer.ggml.tokens"].contents() == tokens


def test_spaces_are_a_sign_of_their_own_in_some_files(qwen: Made, tmp_path: Path) -> None:
    tokens = [token.replace(" ", "\u2581") for token in tokens_of(qwen.artifact)]
    export_artifact(
        qwen.artifact, "gguf", tmp_path / "m.gguf", None, write(tmp_path / "o.gguf", tokens)
    )
    found = gguf.GGUFReader(tmp_path / "m.gguf").fields["tokenizer.ggml.tokens"].contents()
    assert found == tokens


def refused(artifact: Artifact, folder: Path, other: Path, form: Any = "gguf") -> str:
    with pytest.raises(InputError) as caught:
        export_artifact(artifact, form, folder / "out.gguf", tokenizer_from=other)
    assert caught.value.where == "--tokenizer-from"
    assert not (folder / "out.gguf").exists()
    return caught.value.message


def test_files_of_other_models(qwen: Made, tmp_path: Path) -> None:
    tokens = tokens_of(qwen.artifact)
    tokens[7] = "other"
    message = refused(qwen.artifact, tmp_path, write(tmp_path / "other.gguf", tokens))
    assert "is of another model: token 7 is 'other', not" in message
    short = write(tmp_path / "short.gguf", tokens_of(qwen.artifact)[:100])
    assert "is 'nothing'" in refused(qwen.artifact, tmp_path, short)


def test_what_is_no_file_of_a_model(qwen: Made, tmp_path: Path) -> None:
    assert "no such file" in refused(qwen.artifact, tmp_path, tmp_path / "nowhere.gguf")
    plain = write(tmp_path / "plain.gguf", [])
    assert "has no tokenizer" in refused(qwen.artifact, tmp_path, plain)
    assert "goes into a GGUF file" in refused(qwen.artifact, tmp_path, plain, "hf")
