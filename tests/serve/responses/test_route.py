"""/v1/responses: turns, streams that add up to them, and conversations that go on."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

import optc
from optc.serve.settings import HTTPSettings
from tests.serve.asking.test_tools import ARGUMENTS, FORMATS, SCHEMAS, template_with
from tests.serve.clients import openai_client
from tests.serve.conftest import Api, MakeApi
from tests.serve.toys import saying, toy_engine

PATH = "/v1/responses"
USER = {"role": "user", "content": "hi"}
TOOLS = [{"type": "function", "name": n, "parameters": s} for n, s in SCHEMAS.items()]
CHAT_TOOLS = [
    {"type": "function", "function": {"name": n, "parameters": s}} for n, s in SCHEMAS.items()
]


def events(api: Api, **body: Any) -> list[dict[str, Any]]:
    answer = api.http.post(PATH, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    *found, done, end = answer.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    data = []
    for one in found:
        name, _, rest = one.partition("\n")
        data.append(json.loads(rest.removeprefix("data: ")))
        assert name == f"event: {data[-1]['type']}"
    assert [one["sequence_number"] for one in data] == list(range(len(data)))
    return data


def plainly(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items without their ids, which are new each time."""
    return [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in items]


def both(api: Api, **body: Any) -> dict[str, Any]:
    """A response, which the stream's events add up to."""
    whole = api.post(PATH, **body)
    found = events(api, **body)
    last = found[-1]
    assert last["type"] == f"response.{whole['status']}"
    assert plainly(last["response"]["output"]) == plainly(whole["output"])
    assert last["response"]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    for item in last["response"]["output"]:
        deltas = [
            one["delta"]
            for one in found
            if one["type"].endswith(".delta") and one["item_id"] == item["id"]
        ]
        said = item["arguments"] if "arguments" in item else item["content"][0]["text"]
        assert "".join(deltas) == said
        names = [one["type"] for one in found if one.get("item", {}).get("id") == item["id"]]
        assert names == ["response.output_item.added", "response.output_item.done"]
    return whole


def test_a_turn_is_that_of_a_chat(api: Api) -> None:
    output = api.engine.chat([USER], optc.SamplingParams(max_tokens=9, temperature=0))
    asked = {"model": "toy", "temperature": 0, "max_output_tokens": 9}
    for given in (
        "hi",
        [USER],
        [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    ):
        found = both(api, input=given, **asked)
        (item,) = found["output"]
        assert (item["type"], item["role"]) == ("message", "assistant")
        assert item["content"][0]["text"] == output.text
        assert found["usage"]["input_tokens"] == output.prompt_tokens
        assert found["usage"]["output_tokens"] == output.output_tokens
    assert (found["status"], found["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )


def test_instructions_are_the_systems_and_are_not_kept(api: Api) -> None:
    asked = {"temperature": 0, "max_output_tokens": 3}
    first = api.post(PATH, input="hi", instructions="be brief", **asked)
    said = first["output"][0]["content"][0]["text"]
    second = api.post(PATH, input="go on", previous_response_id=first["id"], **asked)
    messages = [USER, {"role": "assistant", "content": said}, {"role": "user", "content": "go on"}]
    params = optc.SamplingParams(temperature=0, max_tokens=3)
    wanted = api.engine.chat(messages, params)
    assert second["output"][0]["content"][0]["text"] == wanted.text
    assert second["previous_response_id"] == first["id"]
    system = {"role": "system", "content": "be brief"}
    assert first["usage"]["input_tokens"] == api.engine.chat([system, USER], params).prompt_tokens


def test_kept_responses(api: Api) -> None:
    found = api.post(PATH, input="hi", max_output_tokens=2)
    streamed = events(api, input="hi", max_output_tokens=2)[-1]["response"]
    for one in (found, streamed):
        path = f"{PATH}/{one['id']}"
        assert api.http.get(path).json() == one
        assert api.http.get(path, params={"stream": "false"}).json() == one
        refused = api.http.get(path, params={"stream": "true"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stream")
        assert "has ended" in api.error(f"{path}/cancel")["message"]
        assert api.http.delete(path).json()["deleted"]
        assert api.http.get(path).status_code == 404
    unkept = api.post(PATH, input="hi", max_output_tokens=2, store=False)
    assert api.http.get(f"{PATH}/{unkept['id']}").status_code == 404
    error = api.error(PATH, 404, input="hi", previous_response_id=unkept["id"])
    assert error["code"] == "response_not_found"


def test_tokens_are_counted_as_the_prompt_has_them(api: Api) -> None:
    first = api.post(PATH, input="hi", max_output_tokens=2)
    for more in (
        {},
        {"instructions": "be brief"},
        {"previous_response_id": first["id"]},
        {"tools": TOOLS},
        {"tools": TOOLS, "tool_choice": "none"},
    ):
        body = {"input": "how are you", **more}
        counted = api.post(f"{PATH}/input_tokens", **body)
        usage = api.post(PATH, max_output_tokens=1, **body)["usage"]
        assert counted == {
            "object": "response.input_tokens",
            "input_tokens": usage["input_tokens"],
        }
    assert "input is missing" in api.error(f"{PATH}/input_tokens", model="toy")["message"]


def test_nobody_finds_the_responses_of_others(make_api: MakeApi) -> None:
    api = make_api(settings=HTTPSettings(keys=("one", "two")))
    headers = [{"authorization": f"Bearer {key}"} for key in ("one", "two")]
    body = {"input": "hi", "max_output_tokens": 1}
    found = api.http.post(PATH, json=body, headers=headers[0]).json()
    path = f"{PATH}/{found['id']}"
    assert [api.http.get(path, headers=one).status_code for one in headers] == [200, 404]
    assert [api.http.delete(path, headers=one).status_code for one in headers[::-1]] == [404, 200]


def test_calls_and_their_results(make_api: MakeApi) -> None:
    marks, text, _ = FORMATS["hermes"]
    engine = saying(text, [USER], template_with(marks), tools=CHAT_TOOLS)
    api = make_api({"toy": engine})
    found = both(api, input="hi", tools=TOOLS, temperature=0)
    message, call = found["output"]
    assert message["content"][0]["text"] == "Well."
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "add", ARGUMENTS)
    assert found["tools"] == [{**one, "description": None, "strict": None} for one in TOOLS]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "2"}
    asked = {"tools": TOOLS, "max_output_tokens": 1, "temperature": 0}
    kept = api.post(PATH, input=[result], previous_response_id=found["id"], **asked)
    sent = api.post(PATH, input=[USER, message, call, result], **asked)
    assert kept["usage"]["input_tokens"] == sent["usage"]["input_tokens"]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "add"}])
def test_calls_that_must_be_written(make_api: MakeApi, choice: Any) -> None:
    api = make_api({"toy": toy_engine(template=template_with(FORMATS["hermes"][0]))})
    asked = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False}
    found = both(api, input="hi", seed=1, max_output_tokens=300, **asked)
    (call,) = found["output"]
    jsonschema.validate(json.loads(call["arguments"]), SCHEMAS[call["name"]])


def test_thoughts(make_api: MakeApi) -> None:
    template = template_with("<think></think>")
    api = make_api({"toy": saying("<think>hm</think>hello", [USER], template)})
    found = both(api, input="hi", temperature=0)
    thought, message = found["output"]
    details = found["usage"]["output_tokens_details"]
    assert details == {"reasoning_tokens": len("<think>hm</think>")}
    assert (thought["type"], thought["content"][0]["text"]) == ("reasoning", "hm")
    assert message["content"][0]["text"] == "hello"


WRONG: list[tuple[dict[str, Any], str | None]] = [
    ({"input": []}, "input"),
    ({"input": 7}, "input"),
    ({"input": [{"type": "message", "content": "hi"}]}, "input.0.role"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0.type"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content"),
    (
        {"input": [{"type": "function_call_output", "output": [{"type": "input_image"}]}]},
        "input.0.output",
    ),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"background": True}, "background"),
    ({"conversation": "c"}, "conversation"),
    ({"truncation": "auto"}, "truncation"),
    ({"tools": [{"type": "web_search"}]}, "tools"),
    ({"tool_choice": {"type": "file_search"}}, "tool_choice"),
    ({"text": {"format": {"type": "json_schema", "name": "s"}}}, "text.format.schema"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG)
def test_wrong_bodies(api: Api, fields: dict[str, Any], param: str | None) -> None:
    assert api.error(PATH, **{"input": "hi", **fields})["param"] == param


def test_the_official_client(make_api: MakeApi) -> None:
    api = make_api({"toy": toy_engine(template=template_with(FORMATS["hermes"][0]))})
    with openai_client(api) as client:
        whole = client.responses.create(model="toy", input="hi", max_output_tokens=5)
        assert client.responses.retrieve(whole.id).output_text == whole.output_text
        form = {"type": "json_schema", "name": "s", "schema": SCHEMAS["add"], "strict": True}
        asked = {"model": "toy", "input": "hi", "text": {"format": form}, "extra_body": {"seed": 2}}
        wanted = client.responses.create(**asked)
        assert json.loads(wanted.output_text)["x"] in (1, 2)
        with client.responses.stream(**asked) as stream:
            deltas = [one.delta for one in stream if one.type == "response.output_text.delta"]
            final = stream.get_final_response()
        assert "".join(deltas) == final.output_text == wanted.output_text
        client.responses.delete(whole.id)


def bare(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Log-probabilities without bytes, as events have them."""
    return [
        {
            **{k: v for k, v in one.items() if k not in ("bytes", "top_logprobs")},
            "top_logprobs": [
                {k: v for k, v in o.items() if k != "bytes"} for o in one["top_logprobs"]
            ],
        }
        for one in entries
    ]


@pytest.mark.parametrize("thinks", [False, True])
def test_deltas_have_the_logprobs_of_their_tokens(make_api: MakeApi, thinks: bool) -> None:
    template = template_with("<think></think>")
    text = f"{'<think>hm</think>' if thinks else ''}hello, you"
    api = make_api({"toy": saying(text, [USER], template)})
    body = {"input": "hi", "temperature": 0, "top_logprobs": 2}
    whole = both(api, **body)
    wanted = bare(whole["output"][-1]["content"][0]["logprobs"])
    assert len(wanted) == whole["usage"]["output_tokens"]
    found = events(api, **body)
    deltas = [one for one in found if one["type"] == "response.output_text.delta"]
    given = [entry for one in deltas for entry in one["logprobs"]]
    assert given == wanted[: len(given)]
    assert len(given) >= len("hello, you")
    assert all(len(entry["top_logprobs"]) == 2 for entry in given)
    (done,) = [one for one in found if one["type"] == "response.output_text.done"]
    assert done["logprobs"] == wanted


def test_without_being_asked_for_they_are_empty(api: Api) -> None:
    found = events(api, input="hi", max_output_tokens=4)
    assert {len(one["logprobs"]) for one in found if "logprobs" in one} == {0}
