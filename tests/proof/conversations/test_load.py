"""The chat of a model, out of an artifact and out of a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optc.errors import InputError
from optc.proof.conversations.load import artifact_chat, folder_chat
from tests.runtime.support.artifacts import write_artifact
from tests.support import chats
from tests.support.chats import conversation, small_tokenizer

TALK = conversation("hi", "ho")


def folder(path: Path, **config: Any) -> Path:
    small_tokenizer().save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


NAMED = [{"name": "rag", "template": "x"}, {"name": "default", "template": chats.PLAIN}]


@pytest.mark.parametrize("template", [chats.PLAIN, NAMED], ids=["text", "named"])
def test_the_template_of_a_folder_may_be_in_its_configuration(
    tmp_path: Path, template: Any
) -> None:
    found = folder_chat(folder(tmp_path, chat_template=template))
    assert found is not None
    assert found.encode(TALK) == chats.chat(chats.PLAIN).encode(TALK)


def test_a_file_of_its_own_is_preferred_and_gets_special_tokens(tmp_path: Path) -> None:
    special = {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    path = folder(tmp_path, chat_template="x", **special)
    (path / "chat_template.jinja").write_text(
        "{{ bos_token }}{{ messages | map(attribute='content') | join }}{{ eos_token }}"
    )
    found = folder_chat(path)
    assert found is not None
    ids = found.encode(TALK)
    assert (ids[0], ids[-1], len(ids)) == (0, 1, 6)


@pytest.mark.parametrize("config", [{}, {"chat_template": [{"name": "rag", "template": "x"}]}])
def test_a_folder_without_a_template_has_none(tmp_path: Path, config: dict[str, Any]) -> None:
    assert folder_chat(folder(tmp_path, **config)) is None
    (tmp_path / "tokenizer_config.json").unlink()
    assert folder_chat(tmp_path) is None


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "tokenizer_config.json").write_text("{")
    with pytest.raises(InputError, match=r"tokenizer_config\.json: cannot read the tokenizer"):
        folder_chat(path)
    (path / "tokenizer_config.json").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"tokenizer_config\.json: cannot read"):
        folder_chat(path)


def test_the_chat_of_an_artifact(tmp_path: Path) -> None:
    template = chats.PLAIN.replace("<|im_end|>", "{{ eos_token }}")
    artifact = write_artifact(tmp_path / "a", chat_template=template)
    found = artifact_chat(artifact.path, artifact.manifest.tokenizer)
    assert found is not None
    assert found.encode(TALK).count(1) == 2, "eos_token is a token"
    assert found.answer(TALK, 1).ids[found.answer(TALK, 1).stop - 1] == 1
    assert artifact_chat(tmp_path, None) is None
    bare = write_artifact(tmp_path / "b", tokenizer=False)
    assert artifact_chat(bare.path, bare.manifest.tokenizer) is None
