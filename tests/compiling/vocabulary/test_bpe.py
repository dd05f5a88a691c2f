"""What tokens are made of, against the tokenizers library."""

from __future__ import annotations

import json
from typing import Any

import pytest

from optc.compiling.vocabulary.bpe import BytePairs
from optc.errors import InputError, UnsupportedError
from tests.compiling.vocabulary.trained import byte_level

VOCAB = {"<unk>": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "bc": 5, "abc": 6, "abab": 7, "d": 8}
MODEL: dict[str, Any] = {
    "type": "BPE",
    "unk_token": "<unk>",
    "vocab": VOCAB,
    "merges": ["a b", "b c", "ab c", "ab ab"],
}


def test_a_token_stays_with_what_it_is_made_of() -> None:
    pairs = BytePairs.read(MODEL, "t")
    assert pairs.closed(["abc"]) == {"abc", "ab", "a", "b", "c"}, "never by way of bc"
    assert pairs.closed(["abab", "d"]) == {"abab", "ab", "a", "b", "d"}
    assert pairs.merges_among({"abc", "ab", "a", "b", "c"}) == [("a", "b"), ("ab", "c")]


@pytest.mark.parametrize("split", [False, True])
def test_merges_are_read_in_both_forms(split: bool) -> None:
    merges = [merge.split(" ") if split else merge for merge in MODEL["merges"]]
    pairs = BytePairs.read({**MODEL, "merges": merges}, "t")
    assert pairs.merges_among(set(VOCAB)) == [("a", "b"), ("b", "c"), ("ab", "c"), ("ab", "ab")]


def test_every_token_of_a_trained_tokenizer_is_made_of_tokens() -> None:
    model = json.loads(byte_level())["model"]
    pairs = BytePairs.read(model, "t")
    for token in model["vocab"]:
        parts = pairs.closed([token])
        results = {left + right for left, right in pairs.merges_among(parts)}
        assert parts <= results | {part for part in parts if len(part) == 1} | {"<s>", "</s>"} | {
            "<pad>"
        }


def test_symbols_without_a_token_are_bytes() -> None:
    spelled = {f"<0x{byte:02X}>": 100 + byte for byte in range(256)}
    model = {**MODEL, "byte_fallback": True, "vocab": {**VOCAB, **spelled, "é": 400, "▁": 401}}
    pairs = BytePairs.read(model, "t")
    assert pairs.closed(["aé"]) == {"aé", "a", "é"}
    assert pairs.closed(["ñ"]) == {"ñ", "<0xC3>", "<0xB1>"}
    assert pairs.alphabet() == {*spelled, "<unk>", "▁", *"abcd"}
    few = {key: value for key, value in model["vocab"].items() if key != "<0xFF>"}
    assert "é" in BytePairs.read({**model, "vocab": few}, "t").alphabet()
    assert BytePairs.read(MODEL, "t").alphabet() == {"<unk>", *"abcd"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"type": "Unigram"}, "t: a tokenizer of the kind Unigram cannot be trimmed (byte-pair"),
        ({"type": "WordPiece"}, "t: a tokenizer of the kind WordPiece cannot be trimmed"),
        ({"end_of_word_suffix": "</w>"}, "t: a tokenizer with end_of_word_suffix='</w>' cannot"),
        ({"continuing_subword_prefix": "##"}, "t: a tokenizer with continuing_subword_prefix"),
    ],
)
def test_other_kinds_are_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        BytePairs.read({**MODEL, **change}, "t")
    assert caught.value.render().startswith(problem)


@pytest.mark.parametrize("change", [{"merges": ["a b c"]}, {"vocab": []}, {"merges": [1]}])
def test_damaged_ones_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="its vocabulary or merges are damaged"):
        BytePairs.read({**MODEL, **change}, "t")
