"""Tools by name: two of one name, and those that alone may be called."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tests.serve.asking.test_tools import (
    CHAT,
    FORMATS,
    SCHEMAS,
    TOOLS,
    USER,
    WRONG_CALL,
    answers,
    template_with,
)
from tests.serve.conftest import MakeApi
from tests.serve.toys import saying, toy_engine

FUNCTIONS = [one["function"] for one in TOOLS]
RESPONSE_TOOLS = [{"type": "function", **one} for one in FUNCTIONS]


def allowed(mode: str, *names: str) -> dict[str, Any]:
    named = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}


def test_two_tools_of_one_name_are_refused(make_api: MakeApi) -> None:
    api = make_api({"toy": toy_engine(template=template_with(FORMATS["hermes"][0]))})
    own = [{"name": name, "input_schema": {"type": "object"}} for name in ("add", "add")]
    bodies: dict[str, dict[str, Any]] = {
        CHAT: {"messages": [USER], "tools": [*TOOLS, TOOLS[0]]},
        "/v1/responses": {"input": "hi", "tools": [*RESPONSE_TOOLS, RESPONSE_TOOLS[0]]},
        "/v1/messages": {"messages": [USER], "max_tokens": 3, "tools": own},
        "/v1/messages/count_tokens": {"messages": [USER], "tools": own},
    }
    for path, body in bodies.items():
        error = api.error(path, **body)
        assert error["message"] == "two tools are named 'add': names are unique", path


@pytest.mark.parametrize("name", ["hermes", "mistral", "deepseek", "deepseek 3.1", "glm"])
def test_no_other_tool_is_called_whatever_the_model_would_write(
    make_api: MakeApi, name: str
) -> None:
    marks, text, tokens = FORMATS[name]
    begins = text.removeprefix("Well.").strip().partition("add")[0]
    written = f"Well, <b>.{begins}{WRONG_CALL}"
    engine = saying(written, [USER], template_with(marks), tokens, tools=TOOLS[1:])
    more = {"temperature": 0, "max_tokens": 300, "parallel_tool_calls": False}
    message, reason = answers(
        make_api({"toy": engine}), tool_choice=allowed("auto", "stop"), **more
    )
    assert message["content"].startswith("Well, <b>.")
    assert [call["name"] for call in message["calls"]] == ["stop"]
    jsonschema.validate(json.loads(message["calls"][0]["arguments"]), SCHEMAS["stop"])
    assert reason == "tool_calls"


def test_a_model_that_may_call_may_answer(make_api: MakeApi) -> None:
    marks, _, tokens = FORMATS["hermes"]
    engine = saying("hello", [USER], template_with(marks), tokens, tools=TOOLS[1:])
    choice = allowed("auto", "stop")
    found = answers(make_api({"toy": engine}), tool_choice=choice, temperature=0)
    assert found == ({"content": "hello"}, "stop")


@pytest.mark.parametrize("name", [*FORMATS, "unknown"])
def test_one_of_those_that_are_allowed_must_be_called(make_api: MakeApi, name: str) -> None:
    engine = toy_engine(template=template_with(FORMATS.get(name, ("",))[0]))
    for one in FUNCTIONS:
        only = one["name"]
        choice = allowed("required", only, only)
        more = {"max_tokens": 400, "seed": 3, "parallel_tool_calls": False}
        message, reason = answers(make_api({"toy": engine}), tool_choice=choice, **more)
        assert ([call["name"] for call in message["calls"]], reason) == ([only], "tool_calls")


def test_responses_have_the_choice_in_their_form(make_api: MakeApi) -> None:
    engine = toy_engine(template=template_with(FORMATS["hermes"][0]))
    choice = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "stop"}],
    }
    asked: dict[str, Any] = {
        "input": "hi",
        "tools": RESPONSE_TOOLS,
        "seed": 1,
        "max_output_tokens": 300,
    }
    api = make_api({"toy": engine})
    found = api.post("/v1/responses", **asked, tool_choice=choice, parallel_tool_calls=False)
    assert [one["name"] for one in found["output"]] == ["stop"]
    no_tools: list[dict[str, str]] = []
    for wrong in ({"mode": None}, {"tools": no_tools}, {"tools": [{"type": "file_search"}]}):
        error = api.error("/v1/responses", **asked, tool_choice={**choice, **wrong})
        assert error["param"].startswith("tool_choice")


@pytest.mark.parametrize(
    ("choice", "param", "message"),
    [
        (allowed("auto", "none"), "tool_choice", "there is no tool 'none'; there are: add, stop"),
        (allowed("none", "add"), "tool_choice.allowed_tools.mode", "'auto' or 'required'"),
        (allowed("auto"), "tool_choice.allowed_tools.tools", "at least 1"),
        ({"type": "allowed_tools"}, "tool_choice.allowed_tools", "is missing"),
    ],
)
def test_what_cannot_be_allowed(make_api: MakeApi, choice: Any, param: str, message: str) -> None:
    api = make_api({"toy": toy_engine(template=template_with(FORMATS["hermes"][0]))})
    error = api.error(CHAT, messages=[USER], tools=TOOLS, tool_choice=choice)
    assert (error["param"], message in error["message"]) == (param, True), error
