"""The format of calls and thoughts follows from the template's text."""

from __future__ import annotations

import pytest

from optc.runtime.parsing.formats import (
    DEEPSEEK,
    DEEPSEEK_31,
    GLM,
    HARMONY,
    HARMONY_THOUGHTS,
    HERMES,
    LLAMA,
    MISTRAL,
    PYTHON,
    TAGGED,
    XML,
    CallFormat,
    call_format,
    thought_format,
)

#: What templates of each family have in common.
TEMPLATES: list[tuple[str, CallFormat | None]] = [
    ("<tool_call>\n{{ call | tojson }}\n</tool_call>", HERMES),
    ("<tool_call>\n<function={{ call.name }}>\n<parameter=", XML),
    ("<tool_call>{{ call.name }}\n<arg_key>{{ k }}</arg_key>", GLM),
    ("[TOOL_CALLS][{{ calls }}]", MISTRAL),
    ("<|tool_call|>[{{ calls }}]<|/tool_call|>", TAGGED),
    ("<|python_tag|>{{ call }}", LLAMA),
    ('{"name": "{{ name }}", "parameters": {{ arguments }}}', LLAMA),
    ("put it in the format of [func_name1(params_name1=params_value1, …)]", PYTHON),
    ("<|python_start|>{{ calls }}<|python_end|>", PYTHON),
    ("<|tool_call_start|>[{{ calls }}]<|tool_call_end|>", PYTHON),
    (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ n }}\\n```json",
        DEEPSEEK,
    ),
    ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ n }}<｜tool▁sep｜>{{ a }}", DEEPSEEK_31),
    ("<|start|>assistant<|channel|>analysis<|message|>{{ t }}<|end|>", HARMONY),
    ("{{ messages }}", None),
]


@pytest.mark.parametrize(("template", "format"), TEMPLATES)
def test_calls(template: str, format: CallFormat | None) -> None:
    assert call_format(template) is format


def test_thoughts() -> None:
    assert thought_format("<|channel|>final") is HARMONY_THOUGHTS
    found = thought_format("<think>{{ t }}</think>")
    assert found is not None
    assert found.begin == "<think>"
    assert thought_format("{{ messages }}") is None
