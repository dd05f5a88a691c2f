"""Tokenizers of GGUF files cut texts as the models' own do: parts of tokenizers are the oracle."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from optc.errors import UnsupportedError
from optc.importer.gguf.pre_tokenizer import KNOWN, apply_pre_tokenizer, name_of

#: As Llama 3's and Qwen2's tokenizer.json have it, but for the way to cut numbers.
GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBERS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PIECES = (
    *("1234567", "9", " x", "I'LL", "don't", "\n\n", " \t", "½", "Cửa", " Việt", "你好", "!?"),
    *("été", "HTTPServer", "  ", "३४", "🚀", "a_b", "...", "\r\n", "ი", "(", "'s"),
)
TEXTS = st.lists(st.sampled_from(PIECES)).map("".join)


def isolated(*expressions: str) -> list[Any]:
    return [pre_tokenizers.Split(Regex(one), "isolated") for one in expressions]


def letters(regex: bool = False) -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)


ORACLES: dict[str, list[Any]] = {
    "gpt-2": [letters(regex=True)],
    "smollm": [pre_tokenizers.Digits(individual_digits=True), letters(regex=True)],
    "starcoder": [pre_tokenizers.Digits(individual_digits=True), letters(regex=True)],
    "llama-bpe": [*isolated(GPT4.replace("NUMBERS", r"\p{N}{1,3}")), letters()],
    "qwen2": [*isolated(GPT4.replace("NUMBERS", r"\p{N}")), letters()],
    "falcon": [
        pre_tokenizers.Punctuation("contiguous"),
        letters(regex=True),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
    ],
}


def corrected(model: str, pre: str, **more: Any) -> dict[str, Any]:
    tokenizer = Tokenizer(models.BPE({"a": 0, "<b>": 1, "<e>": 2}, []))
    tokenizer.pre_tokenizer = letters(regex=True)
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    metadata = {"model": model, "pre": pre, **more}
    apply_pre_tokenizer(content, {f"tokenizer.ggml.{k}": v for k, v in metadata.items()}, "m.gguf")
    return content


@pytest.mark.parametrize("name", ORACLES)
@given(text=TEXTS)
def test_texts_are_cut_as_the_models_own_tokenizer_cuts_them(name: str, text: str) -> None:
    found = Tokenizer.from_str(json.dumps(corrected("gpt2", name))).pre_tokenizer
    wanted = pre_tokenizers.Sequence(ORACLES[name])
    assert found.pre_tokenize_str(text) == wanted.pre_tokenize_str(text)


@pytest.mark.parametrize(
    ("name", "whole"),
    [("llama-bpe", True), ("tekken", True), ("glm4", True), ("chatglm-bpe", False)],
)
def test_words_of_the_vocabulary_go_before_merges(name: str, whole: bool) -> None:
    assert corrected("gpt2", name)["model"]["ignore_merges"] is whole


@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("smollm", "in 2024", ["in", "Ġ", "2", "0", "2", "4"]),
        ("llama-bpe", "in 2024", ["in", "Ġ", "202", "4"]),
        ("tekken", "getHTTPServer 42", ["get", "HTTPServer", "Ġ", "4", "2"]),
        ("gpt-4o", "He'LL 1234", ["He'LL", "Ġ", "123", "4"]),
        ("deepseek-v3", "x+1234", ["x", "+", "123", "4"]),
        ("qwen35", "été 12", ["Ã©tÃ©", "Ġ", "1", "2"]),
        ("bloom", "a, b", ["a", ",", "Ġb"]),
    ],
)
def test_kinds_differ_in_numbers_and_case(name: str, text: str, pieces: list[str]) -> None:
    found = Tokenizer.from_str(json.dumps(corrected("gpt2", name))).pre_tokenizer
    assert [piece for piece, _ in found.pre_tokenize_str(text)] == pieces


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_file_that_is_written_again_has_a_name_of_the_same_cuts(name: str) -> None:
    made = corrected("gpt2", name)
    again = name_of(made)
    assert again is not None
    assert KNOWN[again] == KNOWN[name]


@pytest.mark.parametrize(
    ("steps", "whole_words", "name"),
    [
        (ORACLES["gpt-2"], False, "gpt-2"),
        (ORACLES["smollm"], False, "smollm"),
        (ORACLES["llama-bpe"], True, "llama-bpe"),
        (ORACLES["llama-bpe"], False, "dbrx"),
        (ORACLES["qwen2"], False, "qwen2"),
        (ORACLES["qwen2"], True, None),
        ([pre_tokenizers.Digits(individual_digits=False), letters(regex=True)], False, None),
        ([pre_tokenizers.ByteLevel(add_prefix_space=True)], False, None),
        ([letters()], False, None),
        ([pre_tokenizers.Whitespace()], False, None),
    ],
)
def test_tokenizers_of_others_are_named(
    steps: list[Any], whole_words: bool, name: str | None
) -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0}, [], ignore_merges=whole_words))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    assert name_of(json.loads(tokenizer.to_str())) == name


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError) as caught:
        corrected("gpt2", "of-tomorrow")
    assert str(caught.value) == (
        "m.gguf: its tokenizer cuts texts by 'of-tomorrow', which optc does not know (compile the "
        "model's Hugging Face folder, which has tokenizer.json)"
    )


@pytest.mark.parametrize("name", ["", "default"])
def test_files_that_name_none_stay_as_they_are(name: str) -> None:
    assert corrected("gpt2", name)["pre_tokenizer"]["type"] == "ByteLevel"


@pytest.mark.parametrize(
    ("more", "pieces", "text"),
    [
        ({}, ["▁▁a"], " a"),
        ({}, ["▁a▁b"], "a b"),
        ({"add_space_prefix": False}, ["▁a"], " a"),
        ({"add_space_prefix": False}, ["a▁b"], "a b"),
    ],
)
def test_sentence_piece_puts_a_space_before_each_text(
    more: dict[str, Any], pieces: list[str], text: str
) -> None:
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(["a", "b", "▁"])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", split=False)
    strip = decoders.Strip(content=" ", left=1)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), strip])
    content = json.loads(tokenizer.to_str())
    metadata = {"model": "llama", "pre": "default", **more}
    apply_pre_tokenizer(content, {f"tokenizer.ggml.{k}": v for k, v in metadata.items()}, "m.gguf")
    made = Tokenizer.from_str(json.dumps(content))
    encoded = made.encode(text)
    assert "".join(encoded.tokens) == "".join(pieces)
    assert made.decode(encoded.ids) == text


@pytest.mark.parametrize(
    ("model", "pre", "more", "ids"),
    [
        ("gpt2", "llama-bpe", {}, [1, 0]),
        ("gpt2", "llama-bpe", {"add_bos_token": False}, [0]),
        ("gpt2", "qwen2", {}, [0]),
        ("gpt2", "qwen2", {"add_bos_token": True}, [1, 0]),
        ("gpt2", "smollm", {"add_eos_token": True}, [0, 2]),
        ("gpt2", "tekken", {"add_eos_token": True}, [1, 0, 2]),
        ("gpt2", "llama-bpe", {"bos_token_id": -1}, [0]),
        ("llama", "default", {}, [1, 0]),
        ("llama", "default", {"add_bos_token": False}, [0]),
    ],
)
def test_bos_and_eos_go_around_texts_as_the_file_says_or_means(
    model: str, pre: str, more: dict[str, Any], ids: list[int]
) -> None:
    tokens = {"tokens": ["a", "<b>", "<e>"], "bos_token_id": 1, "eos_token_id": 2}
    made = Tokenizer.from_str(json.dumps(corrected(model, pre, **(tokens | more))))
    assert made.encode("a").ids == ids
