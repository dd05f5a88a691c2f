"""Texts as ids: framing, damaged tokenizers, and what is kept for the next to ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from optc.errors import InputError
from optc.proof.conversations.tokens import kept_stream, token_stream, window_start


@pytest.fixture
def tokenizer_file(tmp_path: Path) -> Path:
    vocabulary = {"<s>": 0, "</s>": 1, "[UNK]": 2, **{c: 3 + i for i, c in enumerate("abcdefgh")}}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_documents_are_framed_once(tokenizer_file: Path) -> None:
    documents = ["a b", "c"]
    assert token_stream(documents, tokenizer_file, 0, 1).tolist() == [0, 3, 4, 1, 0, 5, 1]
    assert token_stream(documents, tokenizer_file, None, 1).tolist() == [3, 4, 1, 5, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "EOF while parsing"),
        (b"{}", "Model missing"),
        (b"[" * 10_000, "invalid type: sequence"),
        (b"\xff{}", "'utf-8' codec can't decode"),
    ],
    ids=["cut", "without a model", "deep", "not UTF-8"],
)
def test_damaged_tokenizers_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(InputError, match=rf"tokenizer\.json: the tokenizer gives up: {message}"):
        token_stream(["a"], tmp_path / "tokenizer.json", None, None)


@pytest.mark.parametrize(
    "part",
    [
        {"normalizer": {"type": "Precompiled"}},
        {"model": {"type": "WordLevel", "vocab": {"x": 0}, "unk_token": "?"}},
    ],
    ids=["it cannot be read", "it cannot encode"],
)
def test_a_tokenizer_that_gives_up_is_named(tokenizer_file: Path, part: dict[str, Any]) -> None:
    described = json.loads(tokenizer_file.read_text())
    tokenizer_file.write_text(json.dumps({**described, **part}))
    with pytest.raises(InputError, match=r"tokenizer\.json: the tokenizer gives up: "):
        token_stream(["a"], tokenizer_file, None, None)


def test_windows_begin_with_bos_where_the_tokenizer_puts_it(tokenizer_file: Path) -> None:
    assert window_start(tokenizer_file, 0) == 0
    assert window_start(tokenizer_file, 1) is None
    assert window_start(tokenizer_file, None) is None
    content = json.loads(tokenizer_file.read_text())
    content.pop("post_processor")
    tokenizer_file.write_text(json.dumps(content))
    assert window_start(tokenizer_file, 0) is None
    tokenizer_file.unlink()
    with pytest.raises(InputError, match=r"tokenizer\.json: cannot read the tokenizer: No such"):
        window_start(tokenizer_file, 0)


@pytest.mark.parametrize("changed", ["text", "bos", "eos", "tokenizer", "order"])
def test_what_is_kept_is_of_the_same_texts_frame_and_tokenizer(
    tokenizer_file: Path, changed: str
) -> None:
    texts, bos, eos = ["a b", "c"], 0, 1
    assert kept_stream(texts, tokenizer_file, bos, eos).tolist() == [0, 3, 4, 1, 0, 5, 1]
    match changed:
        case "text":
            texts = ["a b", "d"]
        case "bos":
            bos = 2
        case "eos":
            eos = 2
        case "order":
            texts = texts[::-1]
        case "tokenizer":
            tokenizer_file.write_text(tokenizer_file.read_text().replace('"c":5', '"i":5'))
            tokenizer_file.write_text(tokenizer_file.read_text().replace('"c": 5', '"i": 5'))
    found = kept_stream(texts, tokenizer_file, bos, eos).tolist()
    assert found == token_stream(texts, tokenizer_file, bos, eos).tolist()
    assert found != [0, 3, 4, 1, 0, 5, 1]


def test_a_tokenizer_is_read_once_for_what_is_asked_again(
    tokenizer_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.loads(tokenizer_file.read_text())
    tokenizer_file.write_text(json.dumps({**content, "truncation": None}, indent=3))  # never seen
    first, start = kept_stream(["a"], tokenizer_file, 0, 1), window_start(tokenizer_file, 0)
    monkeypatch.setattr("tokenizers.Tokenizer", None)
    np.testing.assert_array_equal(kept_stream(["a"], tokenizer_file, 0, 1), first)
    assert window_start(tokenizer_file, 0) == start == 0
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 5
