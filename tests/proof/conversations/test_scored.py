"""Which conversations are scored: a user's, and the shipped ones."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from optc.errors import InputError
from optc.proof.conversations.conversation import calls_of
from optc.proof.conversations.scored import (
    FEWEST,
    ScoredConversations,
    scored_conversations,
    scored_shipped,
    shipped_conversations,
)
from optc.proof.conversations.sequences import render
from optc.proof.conversations.token_bytes import TokenBytes
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level
from tests.support import chats
from tests.support.chats import Chat, chat, conversation

LIMITS = {"vocab_size": 300, "max_context": 4096, "affordable": 10**6}


def bytes_chat(template: str) -> Chat:
    """With a token a byte, for texts of all languages."""
    made = Tokenizer(byte_level(), chat_template=template.replace("<|im_end|>", "</s>"))
    return Chat(lambda: made, (1,))


def test_what_is_said_is_marked_and_nothing_else() -> None:
    made = chat()
    (sequence,) = render(made, conversation("hi", "ho", "a", "b!"), 4096).sequences(
        TokenBytes(made.tokenizer, 65)
    )
    said = made.tokenizer.backend.decode(
        sequence.ids[sequence.said].tolist(), skip_special_tokens=False
    )
    assert said == "ho<|im_end|>b!<|im_end|>"
    np.testing.assert_array_equal(sequence.rows + 1, np.flatnonzero(sequence.said))
    assert [d.kind for d in sequence.decisions] == ["begin", "end"] * 2
    assert sequence.ids[-1] == 3, "what the template writes behind the last answer is left out"


def user(count: int = 3, **limits: int) -> ScoredConversations:
    given = [conversation("hi", "ho " * (n + 1)) for n in range(count)]
    limits = {"vocab_size": 65, "max_context": 512, "affordable": 10**6} | limits
    return scored_conversations(given, chat(), source="t.jsonl", **limits)


def test_a_users_conversations() -> None:
    found = user()
    assert len(found.sequences) == 3
    assert found.tokens == 4 + 7 + 10, "their letters, and what ends them"
    assert found.source == "t.jsonl"
    assert found.convention == (
        "3 of 3 conversations, rendered by the model's chat template; 3 answers of 21 tokens and "
        "6 decisions are scored, nothing else"
    )


def test_of_many_some_are_scored_from_all_over() -> None:
    whole = user(40)
    some = user(40, affordable=sum(len(s.ids) for s in whole.sequences) // 2)
    assert len(some.sequences) == 20
    assert len(some.sequences[0].ids) == len(whole.sequences[0].ids)
    assert len(some.sequences[-1].ids) == len(whole.sequences[-1].ids)
    assert len(user(40, affordable=1).sequences) == FEWEST


def test_a_conversation_longer_than_the_context_is_refused() -> None:
    with pytest.raises(InputError, match=r"t\.jsonl:1: longer than the context of 30 tokens"):
        user(max_context=30)


def test_a_tokenizer_of_another_model_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"t\.jsonl: the tokenizer gives id \d+, the model knows 9"
    ):
        user(vocab_size=9)


def test_the_shipped_ones_are_of_every_kind_and_language() -> None:
    given = shipped_conversations()
    assert 60 <= len(given) <= 70
    tools = [one for one in given if one.tools]
    assert len(tools) >= 15
    called = {c["function"]["name"] for one in tools for m in one.messages for c in calls_of(m)}
    assert len(called) >= 15, "many tools"
    assert any(not any(map(calls_of, one.messages)) for one in tools), "some call none"
    assert any(len(calls_of(m)) > 1 for one in tools for m in one.messages), "some call several"
    assert sum(bool(one.schema) for one in given) >= 8
    words = Counter(word for one in given for m in one.messages for word in _words(m["content"]))
    for common in ("the", "and", "der", "die", "nicht", "les", "une", "pas", "def", "select"):
        assert words[common] >= 1, common
    texts = [m["content"] for one in given for m in one.messages if m["role"] == "assistant"]
    assert len(set(filter(None, texts))) == len(list(filter(None, texts))), "none comes twice"


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


@pytest.mark.parametrize("template", [chats.CHATML, chats.PLAIN], ids=["tools", "no tools"])
def test_a_template_with_or_without_tools_takes_all_shipped_ones(template: str) -> None:
    found = scored_shipped(bytes_chat(template), **LIMITS)
    assert isinstance(found, ScoredConversations)
    assert len(found.sequences) == len(shipped_conversations())
    assert found.left_out == {}
    kinds = Counter(d.kind for one in found.sequences for d in one.decisions)
    assert min(kinds[kind] for kind in ("begin", "call", "tool", "value", "end")) >= 10, kinds
    told = "are told in texts, since the template has no place for them" in found.convention
    assert told is (template == chats.PLAIN)


def test_shipped_ones_that_do_not_fit_are_left_out_and_counted() -> None:
    found = scored_shipped(bytes_chat(chats.PLAIN), **(LIMITS | {"max_context": 600}))
    assert isinstance(found, ScoredConversations)
    assert sum(found.left_out.values()) == len(shipped_conversations()) - len(found.sequences) > 0
    assert list(found.left_out) == ["longer than the context of 600 tokens"]


def test_a_template_that_takes_none_says_why() -> None:
    found = scored_shipped(bytes_chat("{{ raise_exception('only poems') }}"), **LIMITS)
    assert found == "none of the shipped conversations can be rendered: only poems"
