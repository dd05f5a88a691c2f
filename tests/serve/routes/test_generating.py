"""Completions and chat completions: answers are the engine's own, and streams add up to them."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import jsonschema
import pytest

import optc
from optc.runtime.openai.fields import NEUTRAL
from optc.runtime.requests.prompts import Chat
from optc.serve.settings import HTTPSettings
from tests.serve.conftest import Api, MakeApi
from tests.serve.toys import FailingExecutable, toy_engine

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
USER = {"role": "user", "content": "hi"}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2]}, "b": {"type": "boolean"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": SCHEMA}}
#: Fields of both routes, and the sampling parameters that they stand for; None are the same.
FIELDS: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    ({"temperature": 0}, {"temperature": 0}),
    ({"seed": 5}, {"seed": 5}),
    ({"seed": -2}, {"seed": (1 << 64) - 2}),
    ({"seed": 5, "n": 3}, {"seed": 5, "n": 3}),
    ({"seed": 5, "top_p": 0.5, "top_k": 9, "min_p": 0.1}, None),
    ({"seed": 5, "logit_bias": {"70": 90}}, {"seed": 5, "logit_bias": {70: 90}}),
    ({"seed": 5, "presence_penalty": 1, "frequency_penalty": 0.5}, None),
    ({"seed": 5, "repetition_penalty": 1.5, "ignore_eos": True}, None),
    ({"temperature": 0, "stop": "z"}, {"temperature": 0, "stop": "z"}),
    ({"seed": 5, "stop": ["e", "t"]}, {"seed": 5, "stop": ["e", "t"]}),
    ({"seed": 5, "stop_token_ids": [70, 80]}, {"seed": 5, "stop_token_ids": [70, 80]}),
    ({"seed": 5, "structured_outputs": {"regex": "[ab]{4}"}}, {"seed": 5, "regex": "[ab]{4}"}),
    (
        {"seed": 5, "structured_outputs": {"choice": ["yes", "no"]}},
        {"seed": 5, "choice": ["yes", "no"]},
    ),
    ({"seed": 5, "structured_outputs": {"json": SCHEMA}}, {"seed": 5, "json_schema": SCHEMA}),
    ({"seed": 5, "response_format": FORMAT}, {"seed": 5, "json_schema": SCHEMA}),
]


def expected(api: Api, fields: dict[str, Any], params: dict[str, Any] | None, prompt: Any) -> Any:
    """The answer of the engine itself."""
    wanted = optc.SamplingParams(max_tokens=24, **(fields if params is None else params))
    (output,) = api.engine.generate([prompt], wanted)
    return output


def texts(chunks: list[dict[str, Any]], key: str) -> dict[int, str]:
    """The text of each choice."""
    found: dict[int, str] = defaultdict(str)
    for choice in (one for chunk in chunks for one in chunk["choices"]):
        part = choice["text"] if key == "text" else choice["delta"].get("content") or ""
        found[choice["index"]] += part
    return dict(found)


def reasons(chunks: list[dict[str, Any]]) -> dict[int, str]:
    """Why each choice ended; each says so once."""
    said = [
        (choice["index"], choice["finish_reason"])
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["finish_reason"] is not None
    ]
    assert len(dict(said)) == len(said)
    return dict(said)


@pytest.mark.parametrize(("fields", "params"), FIELDS)
def test_completions_are_the_engines(
    api: Api, fields: dict[str, Any], params: dict[str, Any] | None
) -> None:
    output = expected(api, fields, params, "hi")
    body = {"model": "toy", "prompt": "hi", "max_tokens": 24, **fields}
    found = api.post(COMPLETIONS, **body)
    assert found["object"] == "text_completion"
    said = {one["index"]: (one["text"], one["finish_reason"]) for one in found["choices"]}
    assert said == {one.index: (one.text, one.finish_reason) for one in output.completions}
    chunks = api.stream(COMPLETIONS, **body)
    assert texts(chunks, "text") == {one.index: one.text for one in output.completions}
    assert reasons(chunks) == {one.index: one.finish_reason for one in output.completions}
    usage = found["usage"]
    assert usage["prompt_tokens"] == output.prompt_tokens
    assert usage["completion_tokens"] == output.output_tokens
    assert usage["total_tokens"] == output.prompt_tokens + output.output_tokens


@pytest.mark.parametrize(("fields", "params"), FIELDS)
def test_chats_are_the_engines(
    api: Api, fields: dict[str, Any], params: dict[str, Any] | None
) -> None:
    output = expected(api, fields, params, Chat([USER]))
    body = {"model": "toy", "messages": [USER], "max_completion_tokens": 24, **fields}
    found = api.post(CHAT, **body)
    assert found["object"] == "chat.completion"
    said = {one["index"]: one["message"] for one in found["choices"]}
    plain = {"role": "assistant", "refusal": None, "annotations": []}
    assert said == {one.index: plain | {"content": one.text} for one in output.completions}
    chunks = api.stream(CHAT, **body)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}
    assert all(len(chunk["choices"]) == 1 for chunk in chunks)
    assert [one["choices"][0]["delta"].get("role") for one in chunks].count("assistant") == len(
        said
    )
    assert texts(chunks, "chat") == {one.index: one.text for one in output.completions}
    assert reasons(chunks) == {one.index: one.finish_reason for one in output.completions}


def test_a_schema_is_followed(api: Api) -> None:
    found = api.post(CHAT, messages=[USER], response_format=FORMAT, max_tokens=100, seed=1)
    jsonschema.validate(json.loads(found["choices"][0]["message"]["content"]), SCHEMA)
    anything = {"type": "json_object"}
    found = api.post(CHAT, messages=[USER], response_format=anything, max_tokens=200, seed=1)
    assert found["choices"][0]["message"]["content"].startswith("{")


@pytest.mark.parametrize("prompt", ["hi", [5, 6], ["hi", "ho"], [[5], [6, 7]], ["hi"] * 5])
@pytest.mark.parametrize("n", [1, 2])
def test_choices_of_several_prompts_are_counted_through(api: Api, prompt: Any, n: int) -> None:
    several = isinstance(prompt[0], str | list) and not isinstance(prompt, str)
    prompts = prompt if several else [prompt]
    outputs = api.engine.generate(prompts, optc.SamplingParams(max_tokens=6, seed=2, n=n))
    wanted = dict(enumerate(one.text for output in outputs for one in output.completions))
    body = {"prompt": prompt, "n": n, "max_tokens": 6, "seed": 2}
    found = api.post(COMPLETIONS, **body)
    assert {one["index"]: one["text"] for one in found["choices"]} == wanted
    assert found["usage"]["prompt_tokens"] == sum(output.prompt_tokens for output in outputs)
    chunks = api.stream(COMPLETIONS, **body, stream_options={"include_usage": True})
    assert texts(chunks, "text") == wanted
    usage = dict(chunks[-1]["usage"])
    del usage["prompt_tokens_details"], found["usage"]["prompt_tokens_details"]
    assert usage == found["usage"]


@pytest.mark.parametrize(
    ("path", "prompt"), [(COMPLETIONS, {"prompt": "hi"}), (CHAT, {"messages": [USER]})]
)
def test_usage_of_streams(api: Api, path: str, prompt: dict[str, Any]) -> None:
    body = {**prompt, "max_tokens": 5, "seed": 1}
    assert all("usage" not in chunk for chunk in api.stream(path, **body))
    last = api.stream(path, **body, stream_options={"include_usage": True})
    assert all("usage" not in chunk for chunk in last[:-1])
    assert (last[-1]["choices"], last[-1]["usage"]["completion_tokens"]) == ([], 5)
    options = {"include_usage": True, "continuous_usage_stats": True}
    each = api.stream(path, **body, stream_options=options)
    written = [chunk["usage"]["completion_tokens"] for chunk in each]
    assert written == sorted(written)
    assert written[-1] == 5
    assert api.error(path, **prompt, stream_options=options)["param"] == "stream_options"


@pytest.mark.parametrize("prompt", ["hi", ["hi", "ho"]])
def test_chunks_that_are_apart_hold_the_same(make_api: MakeApi, prompt: Any) -> None:
    body = {"prompt": prompt, "max_tokens": 200, "temperature": 0, "ignore_eos": True, "n": 2}
    every = make_api().stream(COMPLETIONS, **body)
    apart = make_api(settings=HTTPSettings(pause_s=0.1)).stream(COMPLETIONS, **body)
    assert texts(apart, "text") == texts(every, "text")
    assert reasons(apart) == reasons(every)


def test_logprobs_of_completions(api: Api) -> None:
    params = optc.SamplingParams(max_tokens=5, seed=3, logprobs=2)
    (output,) = api.engine.generate(["hi"], params)
    body = {"prompt": "hi", "max_tokens": 5, "seed": 3, "logprobs": 2}
    whole = api.post(COMPLETIONS, **body)["choices"][0]["logprobs"]
    assert output.logprobs is not None
    assert whole["token_logprobs"] == [one.logprob for one in output.logprobs]
    assert [len(one) for one in whole["top_logprobs"]] >= [1] * 5
    assert whole["text_offset"] == [0, 1, 2, 3, 4]
    parts = [chunk["choices"][0]["logprobs"] for chunk in api.stream(COMPLETIONS, **body)]
    for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [one for part in parts if part for one in part[key]] == whole[key]


@pytest.mark.parametrize("prompt", ["hi there", [70, 80, 90], ["hi", "ho"]])
@pytest.mark.parametrize("new", [0, 3])
def test_echoed_prompts_and_their_scores(api: Api, prompt: Any, new: int) -> None:
    params = optc.SamplingParams(max_tokens=new, seed=3, logprobs=2, prompt_logprobs=2)
    prompts = prompt if isinstance(prompt[0], str) and isinstance(prompt, list) else [prompt]
    outputs = api.engine.generate(prompts, params)
    body = {"prompt": prompt, "max_tokens": new, "seed": 3, "logprobs": 2, "echo": True}
    choices = api.post(COMPLETIONS, **body)["choices"]
    for choice, output, text in zip(choices, outputs, prompts, strict=True):
        assert output.prompt_logprobs is not None
        assert output.logprobs is not None
        said = text if isinstance(text, str) else api.engine.tokenizer.decode(text)  # type: ignore[union-attr]
        assert choice["text"] == said + output.text
        scores = [one and one.logprob for one in [*output.prompt_logprobs, *output.logprobs]]
        assert choice["logprobs"]["token_logprobs"] == scores
        assert len(choice["logprobs"]["tokens"]) == output.prompt_tokens + new
    assert "stream" in api.error(COMPLETIONS, **body, stream=True)["message"]


def test_an_echo_streams_without_scores(api: Api) -> None:
    body = {"prompt": ["hi", "ho"], "max_tokens": 4, "seed": 3, "n": 2, "echo": True}
    whole = {one["index"]: one["text"] for one in api.post(COMPLETIONS, **body)["choices"]}
    assert [whole[index][:2] for index in range(4)] == ["hi", "hi", "ho", "ho"]
    assert texts(api.stream(COMPLETIONS, **body), "text") == whole
    assert api.error(CHAT, messages=[USER], echo=True)["param"] == "echo"


def test_scores_of_prompts_by_their_own_name(api: Api) -> None:
    for path, prompt in ((COMPLETIONS, {"prompt": "hi"}), (CHAT, {"messages": [USER]})):
        found = api.post(path, **prompt, prompt_logprobs=1, max_tokens=1)
        scores = found["choices"][0]["prompt_logprobs"]
        assert scores[0] is None
        assert len(scores) == found["usage"]["prompt_tokens"]
        assert all(
            {"logprob", "rank", "decoded_token"} == set(next(iter(s.values()))) for s in scores[1:]
        )


def test_logprobs_of_chats(api: Api) -> None:
    params = optc.SamplingParams(max_tokens=5, seed=3, logprobs=2)
    output = api.engine.chat([USER], params)
    body = {"messages": [USER], "max_tokens": 5, "seed": 3, "logprobs": True, "top_logprobs": 2}
    whole = api.post(CHAT, **body)["choices"][0]["logprobs"]["content"]
    assert output.logprobs is not None
    assert [one["logprob"] for one in whole] == [one.logprob for one in output.logprobs]
    assert [len(one["top_logprobs"]) for one in whole] == [2] * 5
    joined = bytes(byte for one in whole for byte in one["bytes"])
    assert joined.decode("utf-8", "replace") == output.text
    parts = [chunk["choices"][0]["logprobs"] for chunk in api.stream(CHAT, **body)]
    assert [one for part in parts if part for one in part["content"]] == whole
    plain = api.post(CHAT, messages=[USER], max_tokens=2, logprobs=True)
    assert all(not one["top_logprobs"] for one in plain["choices"][0]["logprobs"]["content"])


def test_tokens_beside_their_text(api: Api) -> None:
    body = {"prompt": "hi", "max_tokens": 5, "seed": 3, "return_token_ids": True}
    (output,) = api.engine.generate(["hi"], optc.SamplingParams(max_tokens=5, seed=3))
    (choice,) = api.post(COMPLETIONS, **body)["choices"]
    assert choice["token_ids"] == list(output.token_ids)
    assert choice["prompt_token_ids"] == list(output.prompt_token_ids)
    parts = [chunk["choices"][0]["token_ids"] for chunk in api.stream(COMPLETIONS, **body)]
    assert [token for part in parts for token in part] == choice["token_ids"]


def test_lengths_that_nobody_stated(api: Api, make_api: MakeApi) -> None:
    assert api.post(COMPLETIONS, prompt="hi", ignore_eos=True)["usage"]["completion_tokens"] == 16
    chat = api.post(CHAT, messages=[USER], ignore_eos=True)["usage"]
    assert chat["total_tokens"] == api.engine.max_context
    own = make_api({"toy": toy_engine(defaults={"max_tokens": 3})})
    for path, prompt in ((COMPLETIONS, {"prompt": "hi"}), (CHAT, {"messages": [USER]})):
        usage = own.post(path, **prompt, ignore_eos=True)["usage"]
        assert usage["completion_tokens"] == 3


@pytest.mark.parametrize(
    ("path", "prompt"), [(COMPLETIONS, {"prompt": "hi"}), (CHAT, {"messages": [USER]})]
)
def test_fields_that_ask_for_nothing(api: Api, path: str, prompt: dict[str, Any]) -> None:
    """Among them those that would be refused if they asked for something."""
    body: dict[str, Any] = {**prompt, "max_tokens": 5, "seed": 3}
    plain = api.post(path, **body)["usage"]
    off: dict[str, Any] = {
        name: values[-1] for name, values in NEUTRAL.items() if name not in ("seed", "stream")
    }
    off |= {"beam_width": 1, "length_penalty": 1.0, "early_stopping": False, "best_of": 1}
    if path == CHAT:
        del off["echo"]
    else:
        del off["logprobs"]  # a number there
    assert api.post(path, **body, **off)["usage"] == plain
    for name, value in off.items():
        assert api.post(path, **body, **{name: value})["usage"] == plain, name
    on: dict[str, Any] = {"length_penalty": 2.0, "early_stopping": True, "bad_words": ["a"]}
    for name, value in on.items():
        assert api.error(path, **body, **{name: value})["param"] == name


def test_contents_and_calls_reach_the_template(api: Api) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 7}'}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "ok", "tool_call_id": "1"},
    ]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    tokens = api.post("/tokenize", messages=messages, tools=tools)["tokens"]
    shown = api.post("/detokenize", tokens=tokens)["prompt"]
    assert shown == "u:hi;a:<f7>;t:ok;[1]a:"
    usage = api.post(CHAT, messages=messages, tools=tools, max_tokens=1)["usage"]
    assert usage["prompt_tokens"] == len(tokens)
    without = api.post(CHAT, messages=messages, tools=tools, tool_choice="none", max_tokens=1)
    assert without["usage"]["prompt_tokens"] == len(tokens) - len("[1]")


def test_an_engine_that_fails_ends_streams_with_an_error(make_api: MakeApi) -> None:
    api = make_api({"toy": toy_engine(lambda: FailingExecutable(3))})
    answer = api.http.post(COMPLETIONS, json={"prompt": "hi", "stream": True, "ignore_eos": True})
    *_, error, done, end = answer.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    told = json.loads(error.removeprefix("data: "))["error"]
    assert (told["type"], told["code"]) == ("server_error", "engine_failed")
    assert api.http.get("/health").status_code == 503
    assert api.http.get("/ready").status_code == 503
    assert api.error(COMPLETIONS, 500, prompt="hi")["code"] == "engine_failed"


def test_an_engine_that_fails_is_a_500(make_api: MakeApi) -> None:
    api = make_api({"toy": toy_engine(lambda: FailingExecutable(3))})
    assert api.error(COMPLETIONS, 500, prompt="hi", ignore_eos=True)["code"] == "engine_failed"
