"""Arguments of calls reach every template as JSON, whether they came as an object or as text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from optc.runtime.text.calls import ArgumentsForm
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level

#: How templates write arguments: those of Qwen, GLM, DeepSeek R1, Llama 3.1, Mistral, and others.
WRITES: dict[str, tuple[str, ArgumentsForm]] = {
    "tojson": ("{{ f.arguments | tojson }}", "objects"),
    "items": ("{% for k, v in f.arguments.items() %}{{ k }}={{ v }};{% endfor %}", "objects"),
    "items filter": (
        "{% for k, v in f.arguments | items %}{{ k }}={{ v }};{% endfor %}",
        "objects",
    ),
    "added": ("{{ '```json\\n' + f.arguments + '\\n```' }}", "texts"),
    "printed": ("{{ f.arguments }}", "texts"),
    "whole": ("{{ c | tojson }}", "objects"),
    "asks": (
        "{% if f.arguments is string %}{{ f.arguments }}{% else %}{{ f.arguments | tojson }}"
        "{% endif %}",
        "objects",
    ),
    "wants a mapping": (
        "{% if f.arguments is not mapping %}{{ raise_exception('no mapping') }}{% endif %}"
        "{{ f.arguments | tojson }}",
        "objects",
    ),
    "name alone": ("{{ f.name }}", "any"),
}
GIVEN = {"city": 'Zürich "x"', "days": 2}


def chat(writes: str, content: str = "{{ m.content }}") -> Tokenizer:
    calls = "{% for c in m.tool_calls or [] %}{% set f = c.function or c %}{{ f.name }}:"
    template = f"{{% for m in messages %}}{content}{calls}{writes}{{% endfor %}}{{% endfor %}}"
    return Tokenizer(byte_level(), chat_template=template)


def conversation(arguments: object, flat: bool = False) -> list[dict[str, Any]]:
    function = {"name": "weather", "arguments": arguments}
    call = function if flat else {"id": "1", "type": "function", "function": function}
    return [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(("writes", "form"), WRITES.values(), ids=list(WRITES))
def test_a_text_and_an_object_are_the_same(writes: str, form: ArgumentsForm, flat: bool) -> None:
    tokenizer = chat(writes)
    assert tokenizer._arguments_form == form
    text = json.dumps(GIVEN, ensure_ascii=False)
    found = {tokenizer.render_chat(conversation(one, flat)) for one in (GIVEN, text)}
    assert len(found) == 1
    (shown,) = found
    assert "\\\\" not in shown
    assert "{'" not in shown
    assert form == "any" or "Zürich" in shown


@pytest.mark.parametrize("text", ["", "{", "[1]", "5", "null"])
def test_what_is_no_object_stays_as_it_is(text: str) -> None:
    shown = chat("{{ f.arguments }}|{{ f.arguments | tojson }}").render_chat(conversation(text))
    assert shown == f"aweather:{text}|{json.dumps(text)}"
    objects = chat(WRITES["tojson"][0]).render_chat(conversation(text))
    assert objects == "aweather:" + ("{}" if not text else json.dumps(text))


def test_templates_that_read_parts() -> None:
    parts = "{% for p in m.content %}{{ p.text }}{% endfor %}"
    tokenizer = chat(WRITES["tojson"][0], parts)
    assert tokenizer._arguments_form == "objects"
    assert tokenizer.render_chat(conversation('{"a": 1}')) == 'aweather:{"a": 1}'
