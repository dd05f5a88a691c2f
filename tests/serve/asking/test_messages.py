"""Messages as chat templates want them."""

from __future__ import annotations

from typing import Any

import pytest

from optc.serve.asking.messages import for_template

MISTRAL, OTHER = "{{ '[TOOL_CALLS]' }}", "{{ '<tool_call>' }}"


def called(arguments: Any, name: str = "call_1") -> list[dict[str, Any]]:
    function = {"name": "f", "arguments": arguments}
    return [
        {"role": "assistant", "tool_calls": [{"id": name, "function": function}]},
        {"role": "tool", "tool_call_id": name, "content": "x"},
    ]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ('{"x": 1}', {"x": 1}),
        ({"x": 1}, {"x": 1}),
        ("", {}),
        (None, {}),
        ("{", "{"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_arguments_are_objects(given: Any, found: Any) -> None:
    messages = called(given)
    made = for_template(messages, OTHER)
    assert made[0]["tool_calls"][0]["function"]["arguments"] == found
    assert messages == called(given), "what the client sent stays as it is"
    assert made[1] == messages[1]


@pytest.mark.parametrize("name", ["call_0123456789", "toolu_1", "", "a b c d e", "é" * 9])
def test_ids_that_mistrals_templates_take(name: str) -> None:
    made = for_template([*called("{}", name), *called("{}", name + "x")], MISTRAL)
    ids = [one["tool_call_id"] for one in made if "tool_call_id" in one]
    assert ids == [one["tool_calls"][0]["id"] for one in made if "tool_calls" in one]
    assert len(set(ids)) == 2
    assert all(len(one) == 9 and one.isascii() and one.isalnum() for one in ids)
    assert for_template(called("{}", ids[0]), MISTRAL)[1]["tool_call_id"] == ids[0]
    assert for_template(called("{}", name), OTHER)[1]["tool_call_id"] == name
