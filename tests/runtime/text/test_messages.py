"""Messages of OpenAI's clients: parts, null values and reasoning, for templates of every kind."""

from __future__ import annotations

from typing import Any

import pytest
from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

from optc.errors import RequestError
from optc.runtime.text.messages import Form, find_form
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level

LOOP = "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}"
#: How templates write a content.
CONTENTS: dict[str, tuple[str, Form]] = {
    "print": ("{{ m['content'] }}", "texts"),
    "strip": ("{{ m.content | trim }}", "texts"),
    "add": ("{{ m.role + m.content }}", "texts"),
    "json": ("{{ m.content | tojson }}", "texts"),
    "parts": (LOOP, "parts"),
    "selected": (
        "{% for p in m.content | selectattr('type', 'equalto', 'text') %}{{ p.text }}{% endfor %}",
        "parts",
    ),
    "indexed": ("{{ m.content[0]['text'] }}", "parts"),
    "both": (
        "{% if m.content is string %}{{ m.content }}{% else %}" + LOOP + "{% endif %}",
        "both",
    ),
}
TEXT = {"type": "text", "text": "hi"}
PARTS = [{"type": "text", "text": "hi "}, {"type": "text", "text": "you"}]


def chat(content: str) -> Tokenizer:
    template = "{% for m in messages %}[{{ m.role }}]" + content + "{% endfor %}"
    return Tokenizer(byte_level(), chat_template=template)


@pytest.mark.parametrize(("content", "form"), CONTENTS.values(), ids=list(CONTENTS))
@pytest.mark.parametrize("role", ["user", "system", "assistant", "tool"])
def test_texts_and_parts_reach_every_template(content: str, form: Form, role: str) -> None:
    tokenizer = chat(content)
    assert find_form(lambda m: tokenizer._render({"messages": m}), role) == form
    text, one = ({"role": role, "content": content} for content in ("hi", [TEXT]))
    assert tokenizer.render_chat([text]) == tokenizer.render_chat([one])
    parts = [{"role": role, "content": [TEXT, TEXT]}]
    if form == "texts":
        joined = [{"role": role, "content": "hi\nhi"}]
        assert tokenizer.render_chat(parts) == tokenizer.render_chat(joined)
    else:
        assert tokenizer.render_chat(parts) == theirs(tokenizer, parts)


def theirs(tokenizer: Tokenizer, messages: list[dict[str, Any]]) -> str:
    """The rendering of transformers."""
    given = _normalize_chat_messages(messages)
    (text,), _ = render_jinja_template(
        [given], chat_template=tokenizer.chat_template, add_generation_prompt=True
    )
    assert isinstance(text, str)
    return text


def test_a_template_may_read_parts_of_users_alone() -> None:
    tokenizer = chat("{% if m.role == 'user' %}" + LOOP + "{% else %}{{ m.content }}{% endif %}")
    said = [{"role": "system", "content": PARTS[1:]}, {"role": "user", "content": PARTS}]
    assert tokenizer.render_chat(said) == "[system]you[user]hi you"


@pytest.mark.parametrize("kind", ["image_url", "image", "input_audio", "video", "file", "other", 3])
@pytest.mark.parametrize("content", ["print", "parts"])
def test_other_parts_are_refused_by_type(kind: object, content: str) -> None:
    said = [{"role": "user", "content": [*PARTS, {"type": kind, "x": "y"}]}]
    tokenizer = chat(CONTENTS[content][0])
    if content == "parts" and kind in ("other", 3):  # what the template makes of them
        assert tokenizer.render_chat(said) == theirs(tokenizer, said)
        return
    with pytest.raises(RequestError) as caught:
        tokenizer.render_chat(said)
    assert str(caught.value) == (
        f"messages: a part of type {kind!r} in a content (only text is taken)"
    )


SEEN = "{% for m in messages %}{{ m | dictsort }}{% endfor %}"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": [{"id": None}]},
        {"role": "assistant", "content": "x", "reasoning": "r"},
        {"role": "assistant", "content": "x", "thinking": "t", "reasoning_content": None},
        {"role": "assistant", "content": "x", "reasoning_content": "c", "thinking": "t"},
        {"role": "assistant", "content": "x", "refusal": None, "tool_calls": []},
    ],
    ids=str,
)
def test_templates_see_the_keys_that_transformers_shows(message: dict[str, Any]) -> None:
    tokenizer = Tokenizer(byte_level(), chat_template=SEEN)
    assert tokenizer.render_chat([message]) == theirs(tokenizer, [message])


ENDS = (
    "{{ m.content }}</s>",
    "{{ m.content | trim }}</s>\n",
    "{% if m.content is string %}{{ m.content }}{% else %}{{ m.content[-1].text }}{% endif %}</s>",
    "{% for p in m.content %}{{ p.text }}{% endfor %}</s>",
)
PROMPT = "{% if add_generation_prompt %}[assistant]{% endif %}"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("text", ["Sure", "Sure: ", " </s> a\n"])
def test_the_last_message_is_continued_as_transformers_does(end: str, text: str) -> None:
    template = "{% for m in messages %}[{{ m.role }}]" + end + "{% endfor %}" + PROMPT
    tokenizer = Tokenizer(byte_level(), chat_template=template)
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": text}]
    as_parts = [{**one, "content": [{"type": "text", "text": one["content"]}]} for one in said]
    read = as_parts if end == ENDS[3] else said
    (wanted,), _ = render_jinja_template(
        [read], chat_template=template, continue_final_message=True
    )
    for given in (said, as_parts):
        found = tokenizer.render_chat(given, continue_final_message=True)
        assert found == wanted
        ids = tokenizer.encode_chat(given, continue_final_message=True)
        assert 1 not in ids[-6:], "the end token that a text of the message names is text"
    assert tokenizer.render_chat(said, continue_final_message=False).endswith("[assistant]")


@pytest.mark.parametrize(
    ("template", "messages", "message"),
    [
        ("{{ messages }}", [], "the last message has no text to continue"),
        ("{{ messages }}", [{"role": "user"}], "the last message has no text to continue"),
        ("x", [{"role": "user", "content": "a"}], "the chat template leaves the last message out"),
    ],
)
def test_a_message_that_cannot_be_continued(
    template: str, messages: list[dict[str, Any]], message: str
) -> None:
    tokenizer = Tokenizer(byte_level(), chat_template=template)
    with pytest.raises(RequestError) as caught:
        tokenizer.render_chat(messages, continue_final_message=True)
    assert str(caught.value) == f"continue_final_message: {message}"


def test_a_refusal_is_what_the_assistant_said() -> None:
    tokenizer = chat("{{ m.content }}")
    said = {"role": "assistant", "content": None, "refusal": "no"}
    assert tokenizer.render_chat([said]) == "[assistant]no"
    assert tokenizer.render_chat([{**said, "content": "yes"}]) == "[assistant]yes"
    assert tokenizer.render_chat([{**said, "content": "yes", "refusal": None}]) == "[assistant]yes"


def test_a_sound_of_the_assistant_is_refused() -> None:
    said = {"role": "assistant", "audio": {"id": "audio_1"}}
    with pytest.raises(RequestError, match="a part of type 'audio'"):
        chat("{{ m.content }}").render_chat([said])
    chat("{{ m.content }}").render_chat([{**said, "content": "hi", "audio": None}])
