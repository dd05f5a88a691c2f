"""/v1/messages: messages, streams that add up to them, tools, and errors in Anthropic's form."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

import optc
from optc.serve.messages.ask import ask_count
from optc.serve.settings import HTTPSettings
from tests.serve.asking.test_tools import ARGUMENTS, FORMATS, SCHEMAS, TOOLS, template_with
from tests.serve.clients import anthropic_client
from tests.serve.conftest import Api, MakeApi
from tests.serve.toys import saying, toy_engine

PATH = "/v1/messages"
USER = {"role": "user", "content": "hi"}
OWN_TOOLS = [{"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]
HERMES = template_with(FORMATS["hermes"][0])


def events(api: Api, **body: Any) -> list[dict[str, Any]]:
    answer = api.http.post(PATH, json={"max_tokens": 9, **body, "stream": True})
    assert answer.status_code == 200, answer.text
    *found, end = answer.text.split("\n\n")
    assert end == ""
    data = []
    for one in found:
        name, _, rest = one.partition("\n")
        data.append(json.loads(rest.removeprefix("data: ")))
        assert name == f"event: {data[-1]['type']}"
    return data


def folded(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that events add up to."""
    assert (found[0]["type"], found[-1]["type"]) == ("message_start", "message_stop")
    message: dict[str, Any] = found[0]["message"]
    partial = ""
    for one in found[1:-1]:
        if one["type"] == "content_block_start":
            assert one["index"] == len(message["content"])
            message["content"].append(one["content_block"])
            partial = ""
        elif one["type"] == "content_block_delta":
            kind, (key, text) = one["delta"]["type"], list(one["delta"].items())[1]
            if kind == "input_json_delta":
                partial += text
                continue
            message["content"][-1][key] += text
        elif one["type"] == "content_block_stop":
            if message["content"][-1]["type"] == "tool_use":
                message["content"][-1]["input"] = json.loads(partial)
        else:
            assert one["type"] == "message_delta"
            message |= one["delta"] | {"usage": one["usage"]}
    return message


def plainly(message: dict[str, Any]) -> dict[str, Any]:
    """Without ids, which are new each time, and what the prefix cache saved."""
    content = [{k: v for k, v in one.items() if k != "id"} for one in message["content"]]
    return {**message, "id": None, "content": content, "usage": message["usage"]["output_tokens"]}


def both(api: Api, **body: Any) -> dict[str, Any]:
    """A message, which the stream's events add up to."""
    asked = {"messages": [USER], "max_tokens": 300, **body}
    whole = api.post(PATH, **asked)
    assert plainly(folded(events(api, **asked))) == plainly(whole)
    return whole


def test_a_message_is_that_of_a_chat(api: Api) -> None:
    system = {"role": "system", "content": "be brief"}
    params = optc.SamplingParams(max_tokens=9, temperature=0)
    for more, messages in (({}, [USER]), ({"system": "be brief"}, [system, USER])):
        output = api.engine.chat(messages, params)
        found = both(api, model="toy", max_tokens=9, temperature=0, **more)
        assert found["content"] == [{"type": "text", "text": output.text, "citations": None}]
        assert (found["type"], found["role"], found["model"]) == ("message", "assistant", "toy")
        assert (found["stop_reason"], found["stop_sequence"]) == ("max_tokens", None)
        usage = found["usage"]
        read = usage["input_tokens"] + usage["cache_read_input_tokens"]
        assert (read, usage["output_tokens"]) == (output.prompt_tokens, 9)


def test_why_a_message_ended(make_api: MakeApi) -> None:
    api = make_api({"toy": saying("one two three", [USER])})
    assert both(api, temperature=0)["stop_reason"] == "end_turn"
    stopped = both(api, temperature=0, stop_sequences=["three", "two", "four"])
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "two")
    assert stopped["content"][0]["text"] == "one "


@pytest.mark.parametrize(
    "content", ["one t", [{"type": "text", "text": "one t"}]], ids=["text", "blocks"]
)
def test_what_the_assistant_began_is_continued(make_api: MakeApi, content: Any) -> None:
    begun = {"role": "assistant", "content": content}
    api = make_api({"toy": saying("wo", [USER, begun], continue_final_message=True)})
    found = both(api, temperature=0, messages=[USER, begun])
    assert found["content"][0]["text"] == "wo"
    counted = api.post(f"{PATH}/count_tokens", messages=[USER, begun])["input_tokens"]
    usage = found["usage"]
    assert counted == usage["input_tokens"] + usage["cache_read_input_tokens"]


def test_thoughts_and_calls(make_api: MakeApi) -> None:
    template = template_with(FORMATS["hermes"][0] + "<think></think>")
    text = "<think>hm</think>" + FORMATS["hermes"][1]
    api = make_api({"toy": saying(text, [USER], template, tools=TOOLS)})
    found = both(api, temperature=0, tools=OWN_TOOLS)
    thought, said, call = found["content"]
    assert thought == {"type": "thinking", "thinking": "hm", "signature": ""}
    assert (said["type"], said["text"]) == ("text", "Well.")
    assert (call["type"], call["name"], call["input"]) == ("tool_use", "add", json.loads(ARGUMENTS))
    assert found["stop_reason"] == "tool_use"
    thinking = {"thinking_tokens": len("<think>hm</think>")}
    assert found["usage"]["output_tokens_details"] == thinking
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "2"}
    conversation = [
        USER,
        {"role": "assistant", "content": found["content"]},
        {"role": "user", "content": [result, {"type": "text", "text": "and?"}]},
    ]
    tokens = api.post(f"{PATH}/count_tokens", messages=conversation, tools=OWN_TOOLS)
    chat = [
        USER,
        {
            "role": "assistant",
            "content": "Well.",
            "tool_calls": [{"function": {"name": "add", "arguments": ARGUMENTS}}],
        },
        {"role": "tool", "content": "2"},
        {"role": "user", "content": "and?"},
    ]
    assert tokens["input_tokens"] == api.post("/tokenize", messages=chat, tools=TOOLS)["count"]
    asked = {"max_tokens": 1, "tools": OWN_TOOLS, "messages": conversation}
    usage = api.post(PATH, **asked)["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == tokens["input_tokens"]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "add"}])
def test_tools_that_must_be_used(make_api: MakeApi, choice: dict[str, Any]) -> None:
    api = make_api({"toy": toy_engine(template=HERMES)})
    one = {**choice, "disable_parallel_tool_use": True}
    found = both(api, tools=OWN_TOOLS, tool_choice=one, temperature=0)
    (call,) = found["content"]
    jsonschema.validate(call["input"], SCHEMAS[call["name"]])
    assert found["stop_reason"] == "tool_use"
    without = both(api, tools=OWN_TOOLS, tool_choice={"type": "none"}, max_tokens=3, temperature=0)
    assert [block["type"] for block in without["content"]] == ["text"]


@pytest.mark.parametrize(
    ("status", "kind", "fields"),
    [
        (400, "invalid_request_error", {"max_tokens": 0}),
        (400, "invalid_request_error", {"max_tokens": None}),
        (400, "invalid_request_error", {"messages": []}),
        (400, "invalid_request_error", {"messages": [{"role": "tool", "content": "x"}]}),
        (
            400,
            "invalid_request_error",
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
        ),
        (400, "invalid_request_error", {"tools": [{"type": "bash_20250124", "name": "bash"}]}),
        (400, "invalid_request_error", {"tool_choice": {"type": "any"}}),
        (400, "invalid_request_error", {"mcp_servers": [{"name": "x"}]}),
        (404, "not_found_error", {"model": "other"}),
    ],
)
def test_errors(api: Api, status: int, kind: str, fields: dict[str, Any]) -> None:
    answer = api.http.post(PATH, json={"messages": [USER], "max_tokens": 3, **fields})
    assert answer.status_code == status
    body = answer.json()
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert body["request_id"] == answer.headers["x-request-id"]
    assert body["error"]["message"]


def test_tools_are_told_in_the_order_of_chats() -> None:
    tool = {"input_schema": {"type": "object"}, "name": "f", "description": "Calls."}
    (told,) = ask_count({"model": "toy", "messages": [USER], "tools": [tool]})["tools"]
    assert list(told["function"].items()) == [
        ("name", "f"),
        ("description", "Calls."),
        ("parameters", {"type": "object"}),
    ]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}},
        {"type": "document", "source": {"type": "text", "data": "x"}},
        {"type": "search_result", "title": "x", "content": []},
    ],
    ids=lambda block: str(block["type"]),
)
def test_what_is_no_text_is_refused_wherever_it_is(api: Api, block: dict[str, Any]) -> None:
    blocks = [{"type": "text", "text": "see"}, block]
    result = {"type": "tool_result", "tool_use_id": "t", "content": blocks}
    for fields in (
        {"messages": [{"role": "user", "content": blocks}]},
        {"messages": [{"role": "user", "content": [result]}]},
        {"messages": [USER], "system": blocks},
    ):
        answer = api.http.post(PATH, json={"max_tokens": 3, **fields})
        assert answer.status_code == 400
        message = f"a block of type {block['type']!r}: only text is taken"
        assert answer.json()["error"]["message"] == message


def test_keys(make_api: MakeApi) -> None:
    api = make_api(settings=HTTPSettings(keys=("k",)))
    body = {"messages": [USER], "max_tokens": 1}
    refused = api.http.post(PATH, json=body)
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
    assert api.http.post(PATH, json=body, headers={"x-api-key": "k"}).status_code == 200


def test_the_official_client(make_api: MakeApi) -> None:
    api = make_api({"toy": toy_engine(template=HERMES)})
    with anthropic_client(api) as client:
        asked = {"model": "toy", "messages": [USER], "max_tokens": 200}
        asked["extra_body"] = {"temperature": 0}
        must = {"tools": OWN_TOOLS, "tool_choice": {"type": "tool", "name": "add"}}
        whole = client.messages.create(**asked, **must)
        with client.messages.stream(**asked, **must) as stream:
            final = stream.get_final_message()
        assert final.content[0].input == whole.content[0].input
        assert final.stop_reason == whole.stop_reason == "tool_use"
        with client.messages.stream(**{**asked, "max_tokens": 5}) as stream:
            text = "".join(stream.text_stream)
        assert text == client.messages.create(**{**asked, "max_tokens": 5}).content[0].text
        counted = client.messages.count_tokens(model="toy", messages=[USER])
        assert counted.input_tokens == len("u:hi;a:")
        import anthropic

        with pytest.raises(anthropic.NotFoundError):
            client.messages.create(**{**asked, "model": "other"})
