"""Control tokens of GGUF files keep their texts and ids, whatever letters they have."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from optc.importer.gguf.added_tokens import apply_added_tokens

NORMAL, CONTROL, USER = 1, 3, 4
#: Texts of control tokens in files of DeepSeek, Qwen, Llama 3, Kimi, and of none that is known.
TEXTS = (
    *("<｜begin▁of▁sentence｜>", "<|im_start|>", "<|eot_id|>", "[extra_id_0]", "<｜tool▁calls｜>"),
    *("<|🚀|>", "名前", "a b", "<\n>"),
)


def in_letters(text: str) -> str:
    """A text's bytes as letters."""
    found = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return "".join(piece for piece, _ in found.pre_tokenize_str(text))


def as_transformers(tokens: list[str], missed: list[str]) -> dict[str, Any]:
    """The tokenizer.json that transformers makes: in letters, with what it misses behind."""
    vocabulary = {in_letters(one) if one in TEXTS else one: i for i, one in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(one, normalized=False) for one in missed])
    found: dict[str, Any] = json.loads(tokenizer.to_str())
    return found


def corrected(content: dict[str, Any], tokens: list[str], kinds: list[int] | None) -> Tokenizer:
    metadata: dict[str, Any] = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tokens}
    if kinds is not None:
        metadata["tokenizer.ggml.token_type"] = kinds
    apply_added_tokens(content, metadata)
    return Tokenizer.from_str(json.dumps(content))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("kind", "missed"), [(CONTROL, True), (CONTROL, False), (USER, False)])
def test_a_text_of_it_is_its_id(text: str, kind: int, missed: bool) -> None:
    tokens = ["x", "y", text, "Ġ"]
    content = as_transformers(tokens, ["<|endoftext|>", *([text] if missed else [])])
    made = corrected(content, tokens, [NORMAL, NORMAL, kind, NORMAL])
    assert made.get_vocab_size() == len(tokens)
    assert made.encode(f"x{text}y").ids == [0, 2, 1]
    assert made.decode([0, 2, 1], skip_special_tokens=False) == f"x{text}y"
    assert made.decode([0, 2, 1]) == ("xy" if kind == CONTROL else f"x{text}y")


def test_nothing_has_an_id_behind_the_vocabulary() -> None:
    tokens = ["x", "<b>"]
    content = as_transformers(tokens, ["<unk>", "<b>"])
    assert Tokenizer.from_str(json.dumps(content)).get_vocab_size() == 3
    made = corrected(content, tokens, None)
    assert made.get_vocab_size() == 2
    assert made.encode("<b>x").ids == [1, 0]


def test_what_transformers_knows_of_a_token_is_kept() -> None:
    tokens = ["x", "</s>"]
    content = as_transformers(tokens, [])
    flags = {"single_word": False, "lstrip": False, "rstrip": True, "normalized": False}
    content["added_tokens"] = [{"id": 1, "content": "</s>", **flags, "special": False}]
    assert corrected(content, tokens, [NORMAL, CONTROL]).encode("</s>  x").ids == [1, 0]


def test_other_kinds_of_tokenizers_only_lose_what_is_behind() -> None:
    content = json.loads(Tokenizer(models.Unigram([("▁x", -1.0), ("<s>", 0.0)], None)).to_str())
    content["added_tokens"] = [
        {"id": i, "content": text, "special": True} for i, text in ((2, "<pad>"), (1, "<s>"))
    ]
    metadata = {"tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": ["▁x", "<s>"]}
    apply_added_tokens(content, metadata | {"tokenizer.ggml.token_type": [1, 3]})
    assert [one["content"] for one in content["added_tokens"]] == ["<s>"]
    assert content["model"]["vocab"] == [["▁x", -1.0], ["<s>", 0.0]]
