"""Whatever a client sends, it is never the server's fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from optc.runtime.openai.names import REFUSED, SAMPLING
from optc.serve.app import make_app
from optc.serve.bodies.chat import ChatBody
from optc.serve.bodies.completion import CompletionBody
from optc.serve.bodies.generate import GenerateBody
from optc.serve.bodies.tokens import DetokenizeBody, TokenizeBody
from optc.serve.messages.body import CountBody, MessagesBody
from optc.serve.models import ModelSource, ModelTable
from optc.serve.responses.body import ResponseBody
from optc.serve.service import Service
from optc.serve.settings import HTTPSettings, Limits
from tests.serve.toys import toy_engine

USER = {"role": "user", "content": "hi"}
BASES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "hi"},
    "/v1/chat/completions": {"messages": [USER]},
    "/inference/v1/generate": {"token_ids": [5, 6]},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [USER], "max_tokens": 8},
    "/v1/messages/count_tokens": {"messages": [USER]},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [5]},
}
KINDS = {
    "/v1/completions": CompletionBody,
    "/v1/chat/completions": ChatBody,
    "/inference/v1/generate": GenerateBody,
    "/v1/responses": ResponseBody,
    "/v1/messages": MessagesBody,
    "/v1/messages/count_tokens": CountBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
}
NAMES = sorted({*SAMPLING, *REFUSED, *(f for k in KINDS.values() for f in k.model_fields)})
#: Words that mean something somewhere, so that random objects get far.
WORDS = [
    *("type", "function", "name", "parameters", "role", "content", "text", "json_schema", "schema"),
    *("json_object", "regex", "choice", "grammar", "json", "object", "string", "array", "items"),
    *("properties", "required", "auto", "none", "user", "assistant", "tool", "tool_calls", "$ref"),
    *("input_text", "tool_use", "tool_result", "input", "function_call", "message", "reasoning"),
    *("arguments", "include_usage", "#/properties/a", "hi", "[a", "start: x", "1", "-1", "é"),
]
TEXTS = st.sampled_from(WORDS) | st.text(max_size=6)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.sampled_from([1 << 31, 1 << 63, 1 << 64, -(1 << 70), 1e300, -0.0, 0.5])
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def http() -> Iterator[TestClient]:
    table = ModelTable([ModelSource("toy", toy_engine)])
    table.load()
    service = Service(table, HTTPSettings(limits=Limits(new_tokens=8, completions=8)))
    yield TestClient(make_app(service), raise_server_exceptions=False)
    table.close()


def ask(http: TestClient, path: str, body: Any) -> None:
    content = json.dumps(body).encode()
    answer = http.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code < 500, (body, answer.text)
    if answer.status_code >= 400:
        more = set() if path.startswith("/v1/messages") else {"param", "code"}
        assert set(answer.json()["error"]) == {"message", "type"} | more
        assert len(answer.text) < 2000
    elif answer.headers["content-type"].startswith("text/event-stream"):
        ends = ("data: [DONE]\n\n", 'event: message_stop\ndata: {"type": "message_stop"}\n\n')
        assert answer.text.endswith(ends)
        assert '"type": "server_error"' not in answer.text


@settings(max_examples=400)
@given(st.sampled_from(sorted(BASES)), st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3))
def test_any_value_of_any_field(http: TestClient, path: str, fields: dict[str, Any]) -> None:
    ask(http, path, {**BASES[path], **fields})


@settings(max_examples=150)
@given(st.sampled_from(sorted(BASES)), VALUES)
def test_any_body(http: TestClient, path: str, body: Any) -> None:
    ask(http, path, body)


SCHEMAS = st.recursive(
    st.sampled_from([{}, {"type": "string"}, {"type": "integer"}, {"enum": [1, "a"]}, True]),
    lambda inner: st.fixed_dictionaries(
        {"type": st.sampled_from(["object", "array", "x", ["string", "null"]])},
        optional={
            "properties": st.dictionaries(TEXTS, inner, max_size=3),
            "items": inner,
            "required": st.lists(TEXTS, max_size=2),
            "anyOf": st.lists(inner, max_size=2),
            "pattern": st.sampled_from(["a+", "(", "^x$", "\\"]),
            "minItems": st.integers(-1, 3),
            "$ref": st.sampled_from(["#", "#/$defs/a", "http://x"]),
        },
    ),
    max_leaves=5,
)


@settings(max_examples=20)
@given(
    SCHEMAS, st.sampled_from(["auto", "required", {"type": "function", "function": {"name": "f"}}])
)
def test_any_tool(http: TestClient, schema: Any, choice: Any) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    body = {"messages": [USER], "tools": [tool], "tool_choice": choice, "max_tokens": 8}
    ask(http, "/v1/chat/completions", body)
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    ask(http, "/v1/completions", {"prompt": "hi", "response_format": form, "max_tokens": 8})
