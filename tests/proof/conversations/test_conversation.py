"""Lines with messages: what is taken, and what each wrong one is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optc.errors import InputError
from optc.proof.conversations.conversation import ROLES, Conversation, calls_of, read_conversation
from optc.proof.conversations.read import read_texts
from tests.support.chats import call, tool

USER = {"role": "user", "content": "hi"}
SAYS = {"role": "assistant", "content": "ho"}


def line(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


def test_messages_tools_and_the_form_of_answers_are_read() -> None:
    schema = {"type": "object"}
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    messages = [{"role": role, "content": "x"} for role in ROLES]
    found = read_conversation(
        line(*messages, SAYS, tools=[tool("a"), {"name": "b"}], response_format=form), "f:1"
    )
    assert found.answers == (ROLES.index("assistant"), len(ROLES))
    assert found.tool_names == ("a", "b")
    assert found.schema == schema
    assert found.where == "f:1"


def test_arguments_may_be_json_or_a_mapping_and_calls_need_no_content() -> None:
    as_text = call("a")
    as_text["tool_calls"][0]["function"]["arguments"] = '{"n": 1}'
    del as_text["content"]
    found = read_conversation(line(USER, as_text, call("a", n=1), tools=[tool("a")]), "f:1")
    first, second = (calls_of(one)[0]["function"]["arguments"] for one in found.messages[1:])
    assert first == second == {"n": 1}
    assert found.messages[1]["content"] == "", "templates join it with texts"
    assert calls_of(found.messages[0]) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (line(), "messages is no list of messages"),
        ({"messages": "hi"}, "messages is no list of messages"),
        (line("hi", SAYS), "message 1 is no object"),
        (line(USER, {"role": "bot", "content": "x"}), "message 2 has the role 'bot' (one of "),
        (line(USER, {"role": "assistant"}), "message 2 has no content"),
        (line({"role": "user", "content": 3}, SAYS), "message 1 has no content"),
        (line(USER), "no message is the assistant's"),
        (line({**call("a"), "role": "user"}, tools=[tool("a")]), "message 1 calls tools, and is"),
        (line(USER, call("b"), tools=[tool("a")]), "message 2 calls 'b' (its tools are a)"),
        (line(USER, call("b")), "message 2 calls 'b' (it has no tools)"),
        (line(USER, {**SAYS, "tool_calls": ["a"]}), "message 2 has a call that is none"),
        (line(USER, {**SAYS, "tool_calls": "a"}), "tool_calls is no list"),
        (line(USER, {**SAYS, "tool_calls": [{"function": {}}]}), "message 2 has a call that is"),
        (
            line(USER, {**SAYS, "tool_calls": [{"function": {"name": "a", "arguments": "{"}}]}),
            "message 2: arguments are no JSON: ",
        ),
        (line(USER, SAYS, tools={}), "tools is no list"),
        (line(USER, SAYS, tools=[{"function": {}}]), "tools has an element that is no function"),
        (line(USER, SAYS, tools=[{"name": "a", "parameters": 1}]), "parameters of a are no schema"),
        (line(USER, SAYS, response_format={"type": "text"}), "response_format has no JSON schema"),
    ],
)
def test_each_wrong_line_has_one_message_with_file_and_line(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"text": "a"}) + "\n" + json.dumps(wrong) + "\n")
    with pytest.raises(InputError) as caught:
        read_texts(path)
    assert caught.value.render().startswith(f"{path}:2: {message}")


def test_a_file_may_hold_texts_and_conversations(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    texts = [{"text": "a\u2028b"}, line(USER, SAYS)]
    path.write_text("\n\r\n".join(json.dumps(one, ensure_ascii=False) for one in texts))
    first, second = read_texts(path)
    assert first == "a\u2028b", "a line ends where JSON lines do, and nowhere else"
    assert isinstance(second, Conversation)
    assert second.where == f"{path}:3"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"name": "a"}', ":1: not a document: neither text nor messages (one JSON object a line"),
        ('{"text": "a", "messages": []}', ":1: a document has text or messages, not both"),
        ("[]", ":1: not a document (one JSON"),
        ("\n", ": the text is empty"),
    ],
)
def test_lines_that_are_neither(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_texts(path)
    assert caught.value.render().startswith(f"{path}{message}")
