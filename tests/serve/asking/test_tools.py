"""Tools of chats: calls that a model writes by itself, and calls that it must write."""

from __future__ import annotations

import json
import logging
from typing import Any

import jsonschema
import pytest

from optc.proof.conversations.tools_in_text import tools_in_text
from optc.runtime.engine import Engine
from optc.serve.asking import tools
from optc.serve.asking.messages import for_template
from tests.serve.conftest import Api, MakeApi
from tests.serve.toys import TEMPLATE, saying, toy_engine

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "hi"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "add": {
        "type": "object",
        "properties": {"x": {"enum": [1, 2]}, "up": {"type": "boolean"}},
        "required": ["x", "up"],
        "additionalProperties": False,
    },
    "stop": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
ARGUMENTS = '{"x": 1, "up": true}'
CALL = f'{{"name": "add", "arguments": {ARGUMENTS}}}'
CALLED = {"name": "add", "arguments": '{"x": 1, "up": false}'}
DEEPSEEK_MARKS = (
    *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
    *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
)
#: A format's marks as a template has them, and what a model writes.
FORMATS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "hermes": (
        "<tool_call></tool_call>",
        f"Well.\n<tool_call>\n{CALL}\n</tool_call>",
        ("<tool_call>", "</tool_call>"),
    ),
    "xml": (
        "<tool_call><function=",
        "Well.<tool_call><function=add><parameter=x>1</parameter><parameter=up>true</parameter>"
        "</function></tool_call>",
        (),
    ),
    "mistral": ("[TOOL_CALLS]", f"Well.[TOOL_CALLS][{CALL}]", ("[TOOL_CALLS]",)),
    "tagged": ("<|tool_call|>", f"Well.<|tool_call|>[{CALL}]<|/tool_call|>", ()),
    "deepseek": (
        "<｜tool▁calls▁begin｜>```json",
        "Well.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n"
        f"```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        DEEPSEEK_MARKS,
    ),
    "deepseek 3.1": (
        "<｜tool▁calls▁begin｜>",
        "Well.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>"
        f"{ARGUMENTS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        DEEPSEEK_MARKS,
    ),
    "glm": (
        "<arg_key>",
        "Well.<tool_call>add\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n"
        "<arg_key>up</arg_key>\n<arg_value>true</arg_value>\n</tool_call>",
        ("<tool_call>", "</tool_call>"),
    ),
    "python": (
        "<|python_start|>",
        "Well.<|python_start|>[add(x=1, up=True)]<|python_end|>",
        ("<|python_start|>", "<|python_end|>"),
    ),
    "harmony": (
        "<|channel|>",
        "<|channel|>commentary<|message|>Well.<|end|><|start|>assistant<|channel|>commentary "
        f"to=functions.add <|constrain|>json<|message|>{ARGUMENTS}",
        ("<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|constrain|>"),
    ),
    "llama": (
        "<|python_tag|>",
        f'Well.<|python_tag|>{{"name": "add", "parameters": {ARGUMENTS}}}',
        ("<|python_tag|>",),
    ),
}


def template_with(marks: str, more: str = "") -> str:
    return "{% if false %}" + f"{{% raw %}}{marks}{{% endraw %}}" + "{% endif %}" + TEMPLATE + more


def folded(chunks: list[dict[str, Any]]) -> tuple[dict[str, Any], str | None]:
    """The message that a stream adds up to, and why it ended."""
    message: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    reason = None
    for choice in (one for chunk in chunks for one in chunk["choices"]):
        for key in ("content", "reasoning"):
            if choice["delta"].get(key):
                message[key] = message.get(key, "") + choice["delta"][key]
        for part in choice["delta"].get("tool_calls", ()):
            if part["index"] == len(calls):
                assert part["id"].startswith("call_")
                calls.append({"name": part["function"]["name"], "arguments": ""})
            calls[part["index"]]["arguments"] += part["function"].get("arguments", "")
        reason = choice["finish_reason"] or reason
    return message | ({"calls": calls} if calls else {}), reason


def plain(answer: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The message of a whole answer, without what is new each time."""
    (choice,) = answer["choices"]
    message = {key: value for key, value in choice["message"].items() if value and key != "role"}
    calls = message.pop("tool_calls", [])
    assert len({call["id"] for call in calls}) == len(calls)
    assert all(call["type"] == "function" and "index" not in call for call in calls)
    found = [call["function"] for call in calls]
    return message | ({"calls": found} if found else {}), choice["finish_reason"]


def answers(api: Api, **fields: Any) -> tuple[dict[str, Any], str | None]:
    """The same message whole and as a stream."""
    body = {"messages": [USER], "tools": TOOLS, **fields}
    whole = plain(api.post(CHAT, **body))
    assert folded(api.stream(CHAT, **body)) == whole
    return whole


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_calls_that_a_model_writes(make_api: MakeApi, name: str, special: bool) -> None:
    marks, text, tokens = FORMATS[name]
    added = tokens if special else ()
    engine = saying(text, [USER], template_with(marks), added, tools=TOOLS)
    message, reason = answers(make_api({"toy": engine}), temperature=0)
    assert message == {"content": "Well.", "calls": [{"name": "add", "arguments": ARGUMENTS}]}
    assert reason == "tool_calls"


def test_a_cut_call_is_given_as_far_as_it_goes(make_api: MakeApi) -> None:
    marks, text, _ = FORMATS["hermes"]
    engine = saying(text, [USER], template_with(marks), tools=TOOLS)
    most = text.index(ARGUMENTS) + 6
    message, reason = answers(make_api({"toy": engine}), temperature=0, max_tokens=most)
    assert message["calls"] == [{"name": "add", "arguments": ARGUMENTS[:6]}]
    assert reason == "length"


def test_without_tools_nothing_is_a_call(make_api: MakeApi) -> None:
    marks, text, _ = FORMATS["hermes"]
    engine = saying(text, [USER], template_with(marks))
    for fields in ({"tools": []}, {"tool_choice": "none"}):
        message, reason = answers(make_api({"toy": engine}), temperature=0, **fields)
        assert (message, reason) == ({"content": text}, "stop")


@pytest.mark.parametrize("number", [-(1 << 63), (1 << 60) + 1])
def test_numbers_that_no_grammar_keeps_are_refused(make_api: MakeApi, number: int) -> None:
    schema = {"type": "object", "properties": {"id": {"const": number}}, "required": ["id"]}
    named = {"type": "function", "function": {"name": "f", "parameters": schema}}
    api = make_api({"toy": saying("x", [USER])})
    body: dict[str, Any] = {"messages": [USER], "tools": [named], "tool_choice": "required"}
    assert f"{number} has more digits than a float64 holds" in api.error(CHAT, **body)["message"]


def test_one_call_where_one_is_wanted(make_api: MakeApi) -> None:
    marks, _, _ = FORMATS["hermes"]
    call = f"<tool_call>\n{CALL}\n</tool_call>\n"
    engine = saying(call * 2, [USER], template_with(marks), tools=TOOLS)
    api = make_api({"toy": engine})
    assert len(answers(api, temperature=0)[0]["calls"]) == 2
    assert len(answers(api, temperature=0, parallel_tool_calls=False)[0]["calls"]) == 1


def test_an_unknown_format_leaves_calls_in_the_text(
    make_api: MakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    tools._note_unknown.cache_clear()  # another test may have been told before
    engine = saying("[add(x=1)]", [USER], tools=TOOLS)
    with caplog.at_level(logging.WARNING, "optc.serve"):
        message, reason = answers(make_api({"toy": engine}), temperature=0)
    assert (message, reason) == ({"content": "[add(x=1)]"}, "stop")
    assert [record.getMessage() for record in caplog.records] == [
        "the chat template shows no known format of calls: they are left in the text"
    ]


def test_a_template_without_a_place_for_tools(make_api: MakeApi) -> None:
    """They are told in the system's message, as the model would be told by hand."""
    template = TEMPLATE.replace("tools", "others")
    seen = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"function": CALLED}]},
        {"role": "tool", "content": "3", "tool_call_id": "1"},
    ]
    tools = TOOLS[:1]
    plainly = [{**one, "content": one["content"] or ""} for one in for_template(seen, template)]
    told = tools_in_text(plainly, tools)
    told[1]["content"] = "hi"
    call = f"<tool_call>\n{CALL}\n</tool_call>"
    engine = saying(f"Well.\n{call}", told, template)
    message, reason = answers(make_api({"toy": engine}), temperature=0, messages=seen, tools=tools)
    assert message == {"content": "Well.", "calls": [{"name": "add", "arguments": ARGUMENTS}]}
    assert reason == "tool_calls"
    assert call.replace('"up": true', '"up": false') in told[2]["content"]


LEAVES_OUT = (
    "{% for m in messages %}{% if m.role in ('user', 'assistant') %}[{{ m.role }}]{{ m.content }}"
    "{% endif %}{% endfor %}"
)


@pytest.mark.parametrize("fields", [{"tools": []}, {"tools": TOOLS, "tool_choice": "none"}])
def test_results_reach_the_model_where_no_tool_may_be_called(
    make_api: MakeApi, fields: dict[str, Any]
) -> None:
    called = {"role": "assistant", "tool_calls": [{"function": CALLED}]}
    result = {"role": "tool", "content": "3", "tool_call_id": "1"}
    seen: list[dict[str, Any]] = [USER, called, result]
    plainly = [{**one, "content": one.get("content", "")} for one in for_template(seen, "")]
    told = tools_in_text(plainly, ())
    assert [one["role"] for one in told] == ["user", "assistant", "user"]
    assert "3" in told[2]["content"]
    assert '"add"' in told[1]["content"]
    engine = saying("So 3.", told, LEAVES_OUT)
    message, reason = answers(make_api({"toy": engine}), temperature=0, messages=seen, **fields)
    assert (message, reason) == ({"content": "So 3."}, "stop")


def test_thoughts_and_calls(make_api: MakeApi) -> None:
    marks, text, _ = FORMATS["hermes"]
    thinks = "{% if false %}<think></think>{% endif %}"
    template = template_with(marks) + thinks
    engine = saying(f"<think>\nhm\n</think>\n\n{text}", [USER], template, tools=TOOLS)
    api = make_api({"toy": engine})
    message, reason = answers(api, temperature=0)
    assert message == {
        "reasoning": "hm",
        "content": "Well.",
        "calls": [{"name": "add", "arguments": ARGUMENTS}],
    }
    assert reason == "tool_calls"
    assert "reasoning" not in answers(api, temperature=0, include_reasoning=False)[0]


def test_a_prompt_that_begins_a_thought(make_api: MakeApi) -> None:
    template = TEMPLATE + "<think>{{ '</think>' if done }}"
    engine = saying("hm</think>hello", [USER], template)
    api = make_api({"toy": engine})
    message, _ = answers(api, temperature=0, tools=[])
    assert message == {"reasoning": "hm", "content": "hello"}
    done = saying("hello", [USER], template, done=True)
    more = {"chat_template_kwargs": {"done": True}, "tools": []}
    assert answers(make_api({"toy": done}), temperature=0, **more)[0] == {"content": "hello"}


@pytest.mark.parametrize(
    ("text", "in_prompt", "counted"),
    [
        ("<think>hm</think>hello", False, 17),
        (" <think>hm</think>", False, 18),
        ("<think>hm", False, 10),
        ("hello</think>", False, 0),
        ("hello", False, 0),
        ("hm</think>hello", True, 10),
        ("hm", True, 3),
    ],
)
@pytest.mark.parametrize("special", [(), ("<think>", "</think>")])
def test_tokens_of_thoughts(
    make_api: MakeApi, text: str, in_prompt: bool, counted: int, special: tuple[str, ...]
) -> None:
    more = "{% if false %}</think>{% endif %}" + ("<think>" if in_prompt else "")
    engine = saying(text, [USER], TEMPLATE + more, special)
    body = {"messages": [USER], "temperature": 0, "max_tokens": 30}
    api = make_api({"toy": engine})
    whole = api.post(CHAT, **body)["usage"]
    shorter = sum(len(mark) - 1 for mark in special if mark in text[: counted or None])
    wanted = {"reasoning_tokens": counted - shorter if counted else 0}
    assert whole["completion_tokens_details"] == wanted
    options = {"include_usage": True}
    streamed = api.stream(CHAT, **body, stream_options=options)[-1]["usage"]
    assert streamed["completion_tokens_details"] == wanted


@pytest.mark.parametrize("where", ["user", "assistant", "tools"])
def test_marks_that_others_write_begin_no_thought(make_api: MakeApi, where: str) -> None:
    template = TEMPLATE + "{% if tools %}{{ tools[0].function.description }}{% endif %}"
    template += "{% if false %}<think></think>{% endif %}"
    asked = "Why <think>?" if where == "user" else "hi"
    seen = [{"role": "user", "content": asked}]
    if where == "assistant":
        seen = [USER, {"role": "assistant", "content": "<think>cut"}, USER]
    variables: dict[str, Any] = {}
    if where == "tools":
        told: dict[str, Any] = {"name": "f", "description": "Say <think> first."}
        variables = {"tools": [{"type": "function", "function": told}]}
    engine = saying("hello", seen, template, **variables)
    more: dict[str, Any] = {"messages": seen, "temperature": 0, "tools": [], **variables}
    assert answers(make_api({"toy": engine}), **more)[0] == {"content": "hello"}


def test_a_thought_that_the_last_message_begins_goes_on(make_api: MakeApi) -> None:
    template = (
        "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{% if not loop.last %};{% endif %}"
        "{% endfor %}{% if false %}</think>{% endif %}"
    )
    begun = {"role": "assistant", "content": "<think>" + 50 * "well, "}
    continued: dict[str, Any] = {"continue_final_message": True, "add_generation_prompt": False}
    engine = saying("so.</think>Yes.", [USER, begun], template, **continued)
    more = {"messages": [USER, begun], "tools": [], "temperature": 0} | continued
    message, _ = answers(make_api({"toy": engine}), **more)
    assert message == {"reasoning": "so.", "content": "Yes."}


NUMBER = {
    "type": "object",
    "properties": {"n": {"enum": [7, 8]}},
    "required": ["n"],
    "additionalProperties": False,
}
#: Fields that ask for a structure, and a text of it that is none of its beginnings.
STRUCTURES: dict[str, tuple[dict[str, Any], str]] = {
    "schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": NUMBER}}},
        '{"n": 8}',
    ),
    "object": ({"response_format": {"type": "json_object"}}, '{"a/b": "\\n}"}'),
    "regex": ({"structured_outputs": {"regex": "a/b\\/[\n/]x{0,2}"}}, "a/b//xx"),
    "choice": ({"structured_outputs": {"choice": ["no", 'n"o/}']}}, 'n"o/}'),
    "grammar": (
        {"structured_outputs": {"grammar": 'start: "a" thought "}"\nthought: "b" | /[c}]/'}},
        "a}}",
    ),
}


@pytest.mark.parametrize("special", [(), ("<think>", "</think>")])
@pytest.mark.parametrize("name", STRUCTURES)
def test_a_structure_follows_the_thought_that_the_prompt_begins(
    make_api: MakeApi, name: str, special: tuple[str, ...]
) -> None:
    fields, text = STRUCTURES[name]
    template = TEMPLATE + "<think>{{ '</think>' if done }}"
    engine = saying(f"Hm, {{ no.</think>\n{text}", [USER], template, special)
    message, reason = answers(make_api({"toy": engine}), temperature=0, tools=[], **fields)
    assert (message, reason) == ({"reasoning": "Hm, { no.", "content": text}, "stop")
    loose = saying(f"Hm.</think>Well, {text}", [USER], template, special)
    message, reason = answers(make_api({"toy": loose}), seed=1, tools=[], max_tokens=400, **fields)
    assert reason == "length" or not message.get("content", "").startswith("Well")


@pytest.mark.parametrize("name", ["hermes", "xml", "glm", "mistral", "deepseek 3.1"])
@pytest.mark.parametrize("form", ["schema", "object"])
def test_a_model_calls_or_answers_in_a_structure(make_api: MakeApi, name: str, form: str) -> None:
    fields, text = STRUCTURES[form]
    _, written, tokens = FORMATS[name if name not in ("xml", "glm") else "hermes"]
    template, more = template_with(FORMATS[name][0]), {"temperature": 0, **fields}
    engine = saying(text, [USER], template, tokens, tools=TOOLS)
    assert answers(make_api({"toy": engine}), **more) == ({"content": text}, "stop")
    engine = saying(written.removeprefix("Well.").strip(), [USER], template, tokens, tools=TOOLS)
    message, reason = answers(make_api({"toy": engine}), **more)
    assert message == {"calls": [{"name": "add", "arguments": ARGUMENTS}]}
    assert reason == "tool_calls"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}])
def test_a_format_of_texts_is_none_of_calls(make_api: MakeApi, choice: Any) -> None:
    engine = toy_engine(template=template_with(FORMATS["hermes"][0]))
    more, _ = STRUCTURES["schema"]
    assert must_call(engine, make_api, tool_choice=choice, parallel_tool_calls=False, **more)
    body = {"messages": [USER], "tools": TOOLS, "tool_choice": choice} | STRUCTURES["regex"][0]
    error = make_api({"toy": engine}).error(CHAT, **body)
    assert error["param"] == "structured_outputs"
    assert "leave structured_outputs out" in error["message"]


def must_call(engine: Engine, make_api: MakeApi, **fields: Any) -> list[dict[str, Any]]:
    message, reason = answers(make_api({"toy": engine}), max_tokens=400, seed=3, **fields)
    assert reason == "tool_calls", message
    assert "content" not in message
    for call in message["calls"]:
        jsonschema.validate(json.loads(call["arguments"]), SCHEMAS[call["name"]])
    calls: list[dict[str, Any]] = message["calls"]
    return calls


NAMED = {"type": "function", "function": {"name": "add"}}


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", [*FORMATS, "unknown"])
def test_calls_that_a_model_must_write(make_api: MakeApi, name: str, special: bool) -> None:
    marks, _, tokens = FORMATS.get(name, ("", "", ()))
    added = tokens if special else ()
    engine = toy_engine(template=template_with(marks), special=added)
    one = {"parallel_tool_calls": False}
    assert len(must_call(engine, make_api, tool_choice="required", **one)) == 1
    (call,) = must_call(engine, make_api, tool_choice=NAMED)
    assert call["name"] == "add"


STRICT = [{**one, "function": {**one["function"], "strict": True}} for one in TOOLS]
WRONG_CALL = "\n{'name': 'none', \"arguments\": {\"x\": 7}}\n"


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("name", ["hermes", "mistral", "deepseek", "deepseek 3.1", "glm"])
def test_strict_calls_are_right_whatever_the_model_would_write(
    make_api: MakeApi, name: str, thinks: bool
) -> None:
    marks, _, tokens = FORMATS[name]
    thought, special = ("<think>hm</think>", ("<think>", "</think>")) if thinks else ("", ())
    template = template_with(marks + ("<think></think>" if thinks else ""))
    text = f"{thought}Well, <b>.{tokens[0]}{WRONG_CALL}"
    engine = saying(text, [USER], template, (*tokens, *special), tools=STRICT)
    body = {"tools": STRICT, "temperature": 0, "max_tokens": 300, "parallel_tool_calls": False}
    message, reason = answers(make_api({"toy": engine}), **body)
    assert message.get("reasoning") == ("hm" if thinks else None)
    assert message["content"].startswith("Well, <b>.")
    (call,) = message["calls"]
    jsonschema.validate(json.loads(call["arguments"]), SCHEMAS[call["name"]])
    assert reason == "tool_calls"


def test_a_strict_tool_changes_nothing_of_what_is_said(make_api: MakeApi) -> None:
    marks, _, tokens = FORMATS["hermes"]
    for special in (tokens, ()):
        engine = saying(
            "Well, <b> it's {so}.\n", [USER], template_with(marks), special, tools=STRICT
        )
        message, reason = answers(make_api({"toy": engine}), tools=STRICT, temperature=0)
        assert (message, reason) == ({"content": "Well, <b> it's {so}.\n"}, "stop")


def test_a_format_of_the_answer_goes_before_strict_tools(make_api: MakeApi) -> None:
    marks, _, tokens = FORMATS["hermes"]
    engine = toy_engine(template=template_with(marks), special=tokens)
    own = {"structured_outputs": {"choice": ["yes", "no"]}}
    message, _ = answers(make_api({"toy": engine}), tools=STRICT, seed=1, **own)
    assert message["content"] in ("yes", "no")


@pytest.mark.parametrize("special", [(), ("</think>",)])
def test_calls_behind_a_thought(make_api: MakeApi, special: tuple[str, ...]) -> None:
    template = template_with(FORMATS["hermes"][0], "<think>{{ '</think>' if false }}")
    engine = toy_engine(template=template, special=special)
    end = {str(engine.spec.vocab_size - 21): 100} if special else {}  # the token of </think>
    body = {"messages": [USER], "tools": TOOLS, "tool_choice": NAMED, "logit_bias": end}
    if special:
        message, reason = answers(make_api({"toy": engine}), seed=1, max_tokens=200, **body)
        assert reason == "tool_calls"
        assert [call["name"] for call in message["calls"]] == ["add"]
    else:  # a random model does not write it
        message, reason = answers(make_api({"toy": engine}), seed=1, max_tokens=20, **body)
        assert (list(message), reason) == (["reasoning"], "length")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required", "tools": None}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
        (
            {"tool_choice": "required", "structured_outputs": {"regex": "x"}},
            "structured_outputs",
        ),
        (
            {
                "tool_choice": "required",
                "tools": [
                    {"type": "function", "function": {"name": "f", "parameters": {"type": "x"}}}
                ],
            },
            "tools",
        ),
    ],
)
def test_what_cannot_be_called(
    make_api: MakeApi, fields: dict[str, Any], param: str | None
) -> None:
    api = make_api({"toy": toy_engine(template=template_with(FORMATS["hermes"][0]))})
    error = api.error(CHAT, **{"messages": [USER], "tools": TOOLS, **fields})
    assert error["param"] == param
