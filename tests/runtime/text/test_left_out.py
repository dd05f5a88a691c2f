"""Messages that a chat template would leave out are never dropped in silence."""

from __future__ import annotations

from typing import Any

import pytest

from optc.errors import RequestError
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level

#: How templates choose what they write: by known roles, the system's first of all or not at all.
LLAMA = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content | trim }}[/INST]"
    "{% elif m.role == 'system' %}<<{{ m.content }}>>"
    "{% elif m.role == 'assistant' %}{{ m.content }}</s>{% endif %}{% endfor %}"
)
FIRST = (
    "{% if messages[0].role == 'system' %}<<{{ messages[0].content }}>>{% endif %}"
    "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}"
)
NO_SYSTEM = FIRST[FIRST.index("{% for") :]
PARTS = (
    "{% for m in messages %}{% if m.role == 'user' %}{% for p in m.content %}{{ p.text }}"
    "{% endfor %}{% elif m.role == 'assistant' %}{{ m.content }}{% endif %}{% endfor %}"
)
ESCAPES = "{% for m in messages %}{{ m.content | tojson(ensure_ascii=true) }}{% endfor %}"
DEVELOPERS = LLAMA.replace("'system'", "'developer'")
USER: dict[str, Any] = {"role": "user", "content": "hi"}
SYSTEM: dict[str, Any] = {"role": "system", "content": " be kind\n"}
DEVELOPER = {"role": "developer", "content": "be brief"}
RESULT: dict[str, Any] = {"role": "tool", "content": "3", "tool_call_id": "1"}
CALL: dict[str, Any] = {"function": {"name": "a", "arguments": {"x": 1}}}
CALLS: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [CALL]}


def tokenizer(template: str) -> Tokenizer:
    return Tokenizer(byte_level(), chat_template=template)


@pytest.mark.parametrize(
    ("template", "messages", "message"),
    [
        (LLAMA, [USER, RESULT], "message 2, of the role 'tool'"),
        (LLAMA, [{**USER, "role": "function"}], "message 1, of the role 'function'"),
        (LLAMA, [{"content": "hi"}], "message 1, of the role 'None'"),
        (LLAMA, [USER, CALLS, USER], "the calls of message 2, of the role 'assistant'"),
        (FIRST, [USER, SYSTEM, USER], "message 2, of the role 'system'"),
        (FIRST, [SYSTEM, DEVELOPER, USER], "message 2, of the role 'system'"),
        (NO_SYSTEM, [SYSTEM, USER], "message 1, of the role 'system'"),
        (PARTS, [USER, RESULT], "message 2, of the role 'tool'"),
        (PARTS, [USER, {**RESULT, "content": [{"type": "text", "text": "3"}]}], "message 2"),
        (DEVELOPERS, [SYSTEM, USER], "message 1, of the role 'system'"),
    ],
)
def test_a_message_that_is_left_out_is_refused(
    template: str, messages: list[dict[str, Any]], message: str
) -> None:
    one = tokenizer(template)
    for render in (one.render_chat, one.encode_chat):
        with pytest.raises(RequestError, match=f"the chat template leaves out.* {message}"):
            render(messages)


@pytest.mark.parametrize(
    ("template", "messages"),
    [
        (LLAMA, [SYSTEM, USER, USER]),
        (LLAMA, [USER, {"role": "tool", "content": ""}, {"role": "assistant", "content": "a"}]),
        (LLAMA, [{"role": "assistant", "content": "<think>a</think>"}]),
        (LLAMA.replace("m.content }}</s>", "'x' }}"), [USER, {"role": "assistant"}]),
        (FIRST, [SYSTEM, USER, RESULT]),
        (ESCAPES, [{**USER, "content": '"é"\n'}, {**RESULT, "content": "ü"}]),
        (PARTS, [{**USER, "content": [{"type": "text", "text": "a"}]}]),
        ("{{ messages[0].content[0].text }}", [USER]),
        ("{{ messages[0].content.split('|')[1] }}", [{**USER, "content": "a|b"}]),
        ("{{ messages | tojson }}", [USER, CALLS, RESULT]),
    ],
)
def test_what_is_shown_in_some_form_is_taken(template: str, messages: list[dict[str, Any]]) -> None:
    one = tokenizer(template)
    assert one.render_chat(messages)
    one.encode_chat(messages)


@pytest.mark.parametrize("template", [LLAMA, FIRST])
def test_developers_are_the_system_where_a_template_knows_none(template: str) -> None:
    one = tokenizer(template)
    system = {**DEVELOPER, "role": "system"}
    assert one.render_chat([DEVELOPER, USER]) == one.render_chat([system, USER])
    assert "brief" in tokenizer(DEVELOPERS).render_chat([DEVELOPER, USER])


@pytest.mark.parametrize("role", ["user", "system", "assistant"])
def test_an_object_is_no_content(role: str) -> None:
    said = [{"role": role, "content": {"type": "text", "text": "hi"}}]
    with pytest.raises(RequestError, match="an object as a content"):
        tokenizer(LLAMA).render_chat(said)
    results = [{"role": "tool", "content": {"temperature": 3}}]
    shown = tokenizer("{% for m in messages %}{{ m.content.temperature }}{% endfor %}")
    assert shown.render_chat(results) == "3"
