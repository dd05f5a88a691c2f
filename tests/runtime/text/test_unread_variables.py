"""Variables that a chat template does not read are never dropped in silence."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

import optc
from optc.errors import RequestError
from optc.runtime.engine import Engine
from optc.runtime.text.named_templates import merged_template
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level
from tests.runtime.support.toy import ToyExecutable, toy_spec

PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"
READS = [
    PLAIN + "{{ X }}",
    PLAIN + "{% if X %}some{% endif %}",
    PLAIN + "{% for one in X or [] %}{{ one }}{% endfor %}",
    "{% if not X is defined %}{% set X = none %}{% endif %}" + PLAIN + "{{ X | tojson }}",
    "{% set X = X if X is defined else none %}" + PLAIN,
    "{% macro all() %}{{ X }}{% endmacro %}" + PLAIN + "{{ all() }}",
    "{% set ns = namespace(x=X) %}" + PLAIN,
    PLAIN + "{% generation %}{{ X | length }}{% endgeneration %}",
    PLAIN + "{% if false %}{{ X }}{% endif %}",
    merged_template([{"name": n, "template": PLAIN} for n in ("default", "tool_use")]).source,
]
READS_NOT = [
    PLAIN,
    "X " + PLAIN + "{{ 'X' }}",
    PLAIN + "{{ messages[0].X }}{{ messages[0]['X'] }}",
    "{% set X = 1 %}" + PLAIN,
    PLAIN + "{# {{ X }} #}",
    "{% raw %}{{ X }}{% endraw %}" + PLAIN,
    PLAIN + "{{ X_2 }}",
]
USER = [{"role": "user", "content": "a"}]
TOOLS: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "f"}}]}
DOCUMENTS: dict[str, Any] = {"documents": [{"text": "b"}]}


def tokenizer(template: str) -> Tokenizer:
    return Tokenizer(byte_level(), chat_template=template)


def ways(template: str, given: dict[str, Any]) -> list[Callable[[], object]]:
    """All ways of giving them."""
    one = tokenizer(template)
    engine = Engine(
        lambda: ToyExecutable(toy_spec((0,), vocab=259, max_context=200)), tokenizer=one
    )
    chat = optc.Chat(USER, given)
    few = optc.SamplingParams(max_tokens=1)
    return [
        lambda: one.render_chat(USER, **given),
        lambda: one.encode_chat(USER, **given),
        lambda: engine.submit(chat, few).result(),
        lambda: engine.generate(chat, few),
        lambda: engine.chat(USER, few, variables=given),
    ]


@pytest.mark.parametrize("given", [TOOLS, DOCUMENTS], ids=["tools", "documents"])
@pytest.mark.parametrize("template", READS_NOT)
def test_what_the_model_would_not_see_is_refused(template: str, given: dict[str, Any]) -> None:
    (name,) = given
    message = f"^{name}: the chat template reads no {name}: the model would not see them"
    for way in ways(template.replace("X", name), given):
        with pytest.raises(RequestError, match=message):
            way()


@pytest.mark.parametrize("given", [TOOLS, DOCUMENTS], ids=["tools", "documents"])
@pytest.mark.parametrize("template", READS)
def test_what_a_template_reads_is_taken(template: str, given: dict[str, Any]) -> None:
    (name,) = given
    if "tools is not none" in template and name != "tools":
        return
    for way in ways(template.replace("X", name), given):
        way()


@pytest.mark.parametrize("nothing", [None, [], {}])
def test_nothing_may_be_given_to_every_template(nothing: object) -> None:
    assert tokenizer(PLAIN).render_chat(USER, tools=nothing, documents=nothing) == "a"


def test_other_variables_are_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    one = tokenizer(PLAIN + "{{ thinking }}")
    with caplog.at_level(logging.WARNING, "optc"):
        for _ in range(3):
            one.render_chat(USER, thinking=False, add_generation_prompt=False)
        assert caplog.messages == []
        for _ in range(3):
            one.render_chat(USER, thinkng=False)
    assert caplog.messages == ["the chat template reads no variable 'thinkng'"]
    assert one.unread({"b": 0, "thinking": 1, "a": False, "c": None}) == ["a", "b"]
