"""Trimmed tokenizers run by the tokenizers library, against the whole ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import tokenizers

from optc.compiling.vocabulary.trim_tokenizer import kept_ids, trimmed
from optc.errors import UnsupportedError
from tests.compiling.vocabulary.trained import DOMAIN, HELDOUT, byte_level, sentence_pieces

WORDS = DOMAIN.split()


def ids(tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
    found: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return found


def trim(
    source: str, texts: list[str], min_count: int = 1, always: Sequence[int] = ()
) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer, list[int]]:
    """The tokenizer before, after, and the ids that stay."""
    before = tokenizers.Tokenizer.from_str(source)
    before.no_padding()
    counts = Counter(one for text in texts for one in ids(before, text))
    data = json.loads(source)
    kept = kept_ids(data, counts, min_count, always, "t")
    after = tokenizers.Tokenizer.from_str(json.dumps(trimmed(data, kept, "t")))
    return before, after, kept


@pytest.mark.parametrize("source", [byte_level(), sentence_pieces()], ids=["bytes", "pieces"])
@pytest.mark.parametrize("min_count", [1, 3])
def test_texts_read_as_before_and_those_of_the_domain_have_the_same_tokens(
    source: str, min_count: int
) -> None:
    texts = [" ".join(WORDS[start : start + 40]) for start in range(0, len(WORDS), 40)]
    before, after, kept = trim(source, texts, min_count)
    assert len(kept) < before.get_vocab_size() - 50
    assert after.get_vocab_size() == len(kept)
    for text in [*texts, HELDOUT, "", "\x00\x7f", "Ω≈ç√ 한국어"]:
        assert after.decode(ids(after, text)) == before.decode(ids(before, text))
        if min_count == 1 and text in texts:
            assert [kept[one] for one in ids(after, text)] == ids(before, text)
    for place, old in enumerate(kept):
        assert after.id_to_token(place) == before.id_to_token(old)


def test_a_token_that_a_text_has_too_seldom_is_spelled_in_others() -> None:
    before, _, kept = trim(byte_level(), [DOMAIN], 3)
    counts = Counter(ids(before, DOMAIN))
    seldom = [one for one, number in counts.items() if number < 3]
    assert [one for one in seldom if one not in kept]
    assert {one for one, number in counts.items() if number >= 3} <= set(kept)


def test_ids_that_stay_always_stay_with_what_they_are_made_of() -> None:
    before = tokenizers.Tokenizer.from_str(byte_level())
    longest = max(before.get_vocab(), key=len)
    old, unnamed = before.token_to_id(longest), 5000
    _, after, kept = trim(byte_level(), ["a b"], always=[old, unnamed])
    assert kept[-1] == unnamed
    assert ids(after, after.decode([kept.index(old)])) == [kept.index(old)]


def test_ids_in_all_places_follow() -> None:
    before, after, kept = trim(byte_level(), ["a b"])
    assert after.encode("a b").tokens == before.encode("a b").tokens
    assert after.encode("a b").ids == [kept.index(one) for one in before.encode("a b").ids]
    end = before.token_to_id("<end>")
    assert after.token_to_id("<end>") == kept.index(end) < end
    assert json.loads(after.to_str())["padding"]["pad_id"] == kept.index(2)


@pytest.mark.parametrize("kind", ["BertProcessing", "RobertaProcessing"])
def test_ends_of_other_post_processors_follow(kind: str) -> None:
    more = {"trim_offsets": True, "add_prefix_space": False} if kind[0] == "R" else {}
    data = json.loads(byte_level())
    end = next(one["id"] for one in data["added_tokens"] if one["content"] == "<end>")
    part = {"type": kind, "sep": ["<end>", end], "cls": ["<s>", 0], **more}
    before, after, kept = trim(json.dumps({**data, "post_processor": part}), ["a b"])
    expected = [kept.index(one) for one in before.encode("a b").ids]
    assert after.encode("a b").ids == expected
    assert expected[-1] == kept.index(end)


def test_an_unknown_post_processor_is_refused() -> None:
    data: dict[str, Any] = {**json.loads(byte_level()), "post_processor": {"type": "New"}}
    with pytest.raises(UnsupportedError, match="t: a post-processor of the kind New may name ids"):
        trimmed(data, kept_ids(data, {}, 1, (), "t"), "t")
