"""What an answer is, for chat templates of every kind; and what no template may do."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from optc.errors import InputError
from optc.proof.conversations.chat import Chat
from optc.proof.conversations.conversation import Conversation
from optc.proof.conversations.sequences import MOST_ANSWERS, render
from optc.proof.conversations.tools_in_text import tools_in_text
from tests.support import chats
from tests.support.chats import call, chat, conversation, tool

TWO = conversation("hi", "ho there", "and?", "no.")
TOOLS = [tool("look", place={"enum": ["here", "there"]}), tool("wait")]


def said(made: Chat, given: Conversation) -> list[str]:
    """The texts that are found to be the assistant's, in order, control tokens by name."""
    texts = []
    for group in render(made, given, 4096).groups:
        for answer in group:
            ids = answer.ids[answer.begin : answer.stop]
            texts.append(made.tokenizer.backend.decode(list(ids), skip_special_tokens=False))
    return texts


@pytest.mark.parametrize(
    ("template", "ends", "answers"),
    [
        (chats.CHATML, (3,), ["ho there<|im_end|>", "no.<|im_end|>"]),
        (chats.PLAIN, (3,), ["ho there<|im_end|>", "no.<|im_end|>"]),
        (chats.MARKED, (3,), ["ho there<|im_end|>", "no.<|im_end|>"]),
        (chats.OPENING, (3,), ["ho there<|im_end|>", "no.<|im_end|>"]),
        (
            chats.THINKING,
            (3,),
            ["<think>\n</think>ho there<|im_end|>", "<think>\n</think>no.<|im_end|>"],
        ),
        (chats.STRIPPING, (1,), ["ho there</s>", "no.</s>"]),
        (chats.PLAIN, (), ["ho there<|im_end|>", "no.<|im_end|>"]),
        (chats.ENDLESS, (1,), ["ho there\n", "no.\n"]),
    ],
    ids=["tools", "plain", "marked", "opening", "thinking", "stripping", "no eos", "endless"],
)
def test_answers_are_what_the_assistant_says(
    template: str, ends: tuple[int, ...], answers: list[str]
) -> None:
    made = chat(template, ends)
    assert said(made, TWO) == answers
    for group in render(made, TWO, 4096).groups:
        for answer in group:
            prompt = made.tokenizer.encode_chat(TWO.messages[: answer.message])
            if template != chats.OPENING:
                assert list(answer.ids[: answer.begin]) == prompt, "what the runtime would give"


def test_turns_share_a_sequence_unless_the_template_tells_earlier_ones_otherwise() -> None:
    assert [len(group) for group in render(chat(chats.PLAIN), TWO, 4096).groups] == [2]
    assert [len(group) for group in render(chat(chats.THINKING), TWO, 4096).groups] == [1, 1]


def test_the_system_message_may_move() -> None:
    messages = [{"role": "system", "content": "be kind"}, *TWO.messages]
    given = Conversation(tuple(messages), (), {}, "t.jsonl:1")
    made = chat(chats.STRIPPING, (1,))
    assert said(made, given) == ["ho there</s>", "no.</s>"]


def test_control_tokens_in_texts_are_text() -> None:
    made = chat(chats.PLAIN)
    (answer,) = render(made, conversation("a<|im_end|>", "b<|im_end|>c"), 4096).groups[0]
    assert said(made, conversation("a", "b<|im_end|>c")) == ["b<|im_end|>c<|im_end|>"]
    assert answer.ids.count(3) == 2, "one that ends each turn"
    whole = made.encode(conversation("a<|im_end|>", "b"))
    assert whole.count(3) == 2


def test_what_stands_before_an_answer_must_stay() -> None:
    with pytest.raises(InputError, match=r"t\.jsonl:1: the chat template changes what stands bef"):
        render(chat(chats.COUNTING), TWO, 4096)


def test_an_answer_that_the_template_leaves_out_is_refused() -> None:
    template = "{% for m in messages if m.role == 'user' %}<s>{{ m.content }}{% endfor %}"
    with pytest.raises(InputError, match=r"t\.jsonl:1: the chat template leaves message 2 out"):
        render(chat(template), TWO, 4096)


def test_a_template_that_refuses_is_named() -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(InputError, match=r"t\.jsonl:1: roles must alternate"):
        render(chat(template), TWO, 4096)


def with_call() -> Conversation:
    messages = ({"role": "user", "content": "hi"}, call("look", place="here"))
    return Conversation(messages, tuple(TOOLS), {}, "t.jsonl:1")


def test_tools_and_calls_are_rendered() -> None:
    assert said(chat(), with_call()) == [
        '<call>{"name": "look", "arguments": {"place": "here"}}<|im_end|>'
    ]


@pytest.mark.parametrize(
    "template",
    [
        chats.PLAIN,
        chats.PLAIN.replace("{{ m.content }}", "{{ m.content }}{{ tools | length if tools }}"),
        "{% if messages[-1].tool_calls %}{{ raise_exception('no calls') }}{% endif %}"
        + chats.PLAIN,
    ],
    ids=["neither", "no calls", "it refuses calls"],
)
def test_a_template_without_tools_is_refused(template: str) -> None:
    message = r"t\.jsonl:1: the chat template cannot render tools: .*\(write the tools into the sys"
    with pytest.raises(InputError, match=message):
        render(chat(template), with_call(), 4096)
    with pytest.raises(InputError, match=message):
        chat(template).encode(with_call())


def test_tools_can_be_told_in_texts() -> None:
    told = chat(chats.PLAIN).telling_tools()
    assert said(told, with_call()) == [
        '<tool_call>\n{"name": "look", "arguments": {"place": "here"}}\n</tool_call><|im_end|>'
    ]
    asked = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hi"},
        {**call("look"), "content": "well"},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": "ho"},
    ]
    found = tools_in_text(asked, TOOLS)
    assert [one["role"] for one in found] == ["system", "user", "assistant", "user", "assistant"]
    assert found[0]["content"].startswith("be kind\n\nYou can call functions.")
    assert found[0]["content"].count('"name": ') == 3, "the example, and both tools"
    assert found[2]["content"].startswith("well\n<tool_call>\n")
    assert found[3]["content"].count("<tool_response>") == 2, "roles alternate"
    assert tools_in_text(asked[1:], TOOLS)[0]["role"] == "system"


def test_a_long_conversation_ends_at_the_first_answer_that_does_not_fit() -> None:
    made, given = chat(chats.CHATML), conversation(*["a", "b"] * MOST_ANSWERS)
    with patch.object(made, "answer", wraps=made.answer) as answer:
        with pytest.raises(InputError, match="longer than the context of 200 tokens"):
            render(made, given, 200)
        assert 1 < answer.call_count < 20


def test_a_conversation_has_a_most_of_answers() -> None:
    made, given = chat(chats.CHATML), conversation(*["a", "b"] * (MOST_ANSWERS + 1))
    with patch.object(made, "answer") as answer:
        with pytest.raises(InputError, match="the conversation has 257 answers, more than 256"):
            render(made, given, 10**6)
        answer.assert_not_called()
