"""Tokens with which a text may begin: those of a grammar's mask."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from optc.proof.conversations.token_bytes import TokenBytes
from optc.runtime.sampling.sampler import unpacked
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.structured.structure import Structure
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_fallback, byte_level
from tests.support.chats import small_tokenizer

TEXTS = ("celsius", "north, or no", "e", ' {"a": [1]}', "na\u00efve caf\u00e9")


@pytest.mark.parametrize("made", [small_tokenizer, byte_level, byte_fallback])
@pytest.mark.parametrize("text", TEXTS)
def test_a_grammar_of_the_text_allows_the_same(made, text: str) -> None:
    """Beside another text: of one alone, llguidance allows just the token that a tokenizer cuts."""
    tokenizer = Tokenizer(made())
    size = tokenizer.backend.get_vocab_size()
    compiler, table = GrammarCompiler(tokenizer, size, ()), TokenBytes(tokenizer, size)
    other = "z" if made is not byte_level else "\x00"
    (constraint,) = compiler.constraints(Structure("choice", json.dumps([text, other])), 1)
    mask = np.zeros((1, constraint.mask_words), np.uint32)
    constraint.fill(mask, [], None)
    allowed = {table.of([token]) for token in np.flatnonzero(unpacked(mask[0], size)).tolist()}
    found = {table.of([token]) for token in table.beginnings(text.encode())}
    assert found == {one for one in allowed if text.encode().startswith(one)}
    assert found, "the tokenizer has such a token"


def test_the_longest_is_last_and_control_tokens_are_whole() -> None:
    table = TokenBytes(Tokenizer(small_tokenizer()), 65)
    assert [table.of([token]) for token in table.beginnings(b"celsius")] == [b"c", b"ce", b"cel"]
    last = table.beginnings(b"<|im_end|>\n")[-1]
    assert (last, table.of([last, last])) == (3, b"<|im_end|><|im_end|>")
    assert 3 not in table.beginnings(b"<|im_end|")
    assert table.beginnings(b"") == ()


def test_tokens_that_the_model_does_not_know_are_left_out() -> None:
    tokenizer = Tokenizer(small_tokenizer())
    whole, part = (TokenBytes(tokenizer, size) for size in (65, 20))
    text = bytes(random.Random(0).choices(b"abcdefgh", k=8))
    assert set(part.beginnings(text)) == {i for i in whole.beginnings(text) if i < 20}
