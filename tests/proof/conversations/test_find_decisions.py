"""Where a model acts: found in answers of every kind, with what it may do there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from optc.proof.conversations.chat import Chat
from optc.proof.conversations.conversation import Conversation
from optc.proof.conversations.decision import Decision
from optc.proof.conversations.sequences import render
from optc.proof.conversations.token_bytes import TokenBytes
from tests.support import chats
from tests.support.chats import call, chat, conversation, tool

SIZE = 65


def decisions(made: Chat, given: Conversation) -> list[tuple[Any, ...]]:
    """``(kind, about, token, options as texts of tokens, taken)`` of each decision, in order."""
    table = TokenBytes(made.tokenizer, SIZE)
    (sequence,) = render(made, given, 4096).sequences(table)

    def texts(found: Decision) -> dict[str, set[str]]:
        return {o.name: {table.of([t]).decode() for t in o.tokens} for o in found.options}

    return [
        (d.kind, d.about, table.of([int(sequence.ids[d.place])]).decode(), texts(d), d.taken)
        for d in sequence.decisions
    ]


def asked(*messages: Any, tools: Any = (), schema: Any = None) -> Conversation:
    user = {"role": "user", "content": "hi"}
    return Conversation((user, *messages), tuple(tools), schema or {}, "t.jsonl:1")


END = ("end", "", "<|im_end|>", {"end": {"<|im_end|>"}, "go on": set()}, 0)


def test_a_plain_answer_begins_and_ends() -> None:
    assert decisions(chat(), conversation("hi", "no.")) == [("begin", "", "no", {}, -1), END]


def test_it_does_not_end_where_no_token_says_so() -> None:
    assert decisions(chat(chats.ENDLESS, (1,)), conversation("hi", "no.")) == [
        ("begin", "", "no", {}, -1)
    ]


TOOLS = [
    tool("cold", unit={"enum": ["celsius", "fahrenheit", "cel"]}, on={"type": "boolean"}),
    tool("code"),
    tool("wait"),
]


def test_a_call_is_made_of_a_tool_with_values() -> None:
    given = asked(call("cold", unit="celsius", on=True), tools=TOOLS)
    opened = {"call": {"<"}, "answer": set()}
    assert decisions(chat(), given) == [
        ("call", "", "<", opened, 0),
        ("tool", "", "c", {"cold|code": {"c"}, "wait": {"w"}}, 0),
        ("tool", "", "l", {"cold": {"l"}, "code": {"d"}}, 0),
        ("value", "cold.unit", "cel", {"celsius|cel": {"c", "ce", "cel"}, "fahrenheit": {"f"}}, 0),
        ("value", "cold.unit", "s", {"celsius": {"s"}, "cel": {'"'}}, 0),
        ("value", "cold.on", "t", {"true": {"t"}, "false": {"f"}}, 0),
        END,
    ]


def test_an_answer_where_a_tool_could_be_called() -> None:
    found = decisions(chat(), asked({"role": "assistant", "content": "no."}, tools=TOOLS))
    assert found == [
        ("begin", "", "no", {}, -1),
        ("call", "", "no", {"call": {"<"}, "answer": set()}, 1),
        END,
    ]


def test_calls_told_in_texts_have_the_same_decisions() -> None:
    given = asked(call("cold", unit="fahrenheit", on=False), tools=TOOLS)
    native, told = (
        [(kind, about, taken) for kind, about, _, _, taken in decisions(made, given)]
        for made in (chat(), chat(chats.PLAIN).telling_tools())
    )
    assert native == told


def test_words_before_a_call_leave_out_whether_one_is_made() -> None:
    given = asked({**call("wait"), "content": "well"}, tools=TOOLS)
    kinds = [kind for kind, *_ in decisions(chat(), given)]
    assert kinds == ["tool", "end"]


def test_every_call_of_an_answer_counts() -> None:
    twice = call("cold", unit="cel")
    twice["tool_calls"] += call("cold", unit="celsius")["tool_calls"]
    found = decisions(chat(), asked(twice, tools=TOOLS))
    assert [about for kind, about, *_ in found if kind == "value"] == ["cold.unit"] * 4


SCHEMA = {
    "properties": {
        "side": {"enum": ["north", "nord", "south"]},
        "legs": {"items": {"properties": {"on": {"type": "boolean"}}}},
    }
}
VALUE = {"side": "north", "legs": [{"on": False}]}


@pytest.mark.parametrize(
    "layout", [{}, {"separators": (",", ":")}, {"indent": 2}, {"indent": 4}], ids=str
)
def test_values_of_json_answers_in_every_layout(layout: dict[str, Any]) -> None:
    content = json.dumps(VALUE, **layout)
    found = decisions(chat(), asked({"role": "assistant", "content": content}, schema=SCHEMA))
    values = [one[1:] for one in found if one[0] == "value"]
    assert values[0][0] == "side"
    assert values[0][2].keys() == {"north", "nord", "south"}, "its tokenizer has north, and nor"
    assert values[0][2]["north"] == {"north"}
    assert values[0][2]["nord"] == {"nor"}, "with which north begins too, and nord is cut"
    assert values[0][2]["south"] == {"s"}
    assert values[-1][0] == "legs[0].on"


@pytest.mark.parametrize("content", ["no json", '{"side":  "north"}', '{"other": 1}'])
def test_answers_without_choices(content: str) -> None:
    found = decisions(chat(), asked({"role": "assistant", "content": content}, schema=SCHEMA))
    assert [kind for kind, *_ in found] == ["begin", "end"]


def test_without_a_schema_json_is_text() -> None:
    found = decisions(chat(), asked({"role": "assistant", "content": json.dumps(VALUE)}))
    assert [kind for kind, *_ in found] == ["begin", "end"]


def test_a_template_that_refuses_other_calls_has_none_of_them() -> None:
    refusing = chats.CHATML.replace(
        "<call>",
        "{% if c.function.name == 'wait' %}{{ raise_exception('no') }}{% endif %}<call>",
    )
    found = decisions(chat(refusing), asked(call("cold"), tools=[TOOLS[0], TOOLS[2]]))
    assert [kind for kind, *_ in found] == ["call", "end"]
