"""Bodies that are no requests."""

from __future__ import annotations

import asyncio
from typing import Annotated

import pytest
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.types import Message

from optc.serve.api_errors import APIError
from optc.serve.asking import read_body
from optc.serve.settings import HTTPSettings, Limits
from tests.serve.conftest import Api, MakeApi

PATH = "/v1/completions"
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the body is no JSON"),
        (b"{", "the body is no JSON"),
        (b"[1]", "the body is no JSON object"),
        (b"null", "the body is no JSON object"),
        (b'"hi"', "the body is no JSON object"),
        (b'{"prompt": "\xff"}', "not UTF-8"),
        (b'{"prompt": "\\ud800"}', "the body is no JSON"),
        (b'{"temperature": NaN}', "NaN"),
        (b'{"seed": 1e999}', "too large"),
        (b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}", "nested"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "digits"),
    ],
)
def test_what_is_no_request(api: Api, content: bytes, message: str) -> None:
    answer = api.http.post(PATH, content=content, headers=JSON)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_other_types_of_content(api: Api, kind: str) -> None:
    answer = api.http.post(PATH, content=b"{}", headers={"content-type": kind})
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]["message"]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_long(make_api: MakeApi, chunked: bool) -> None:
    api = make_api(settings=HTTPSettings(limits=Limits(body_bytes=1000)))
    body = b'{"prompt": "' + b"x" * 1000 + b'"}'
    content = iter([body[:500], body[500:]]) if chunked else body
    answer = api.http.post(PATH, content=content, headers=JSON)
    assert answer.status_code == 413
    assert "1000 bytes" in answer.json()["error"]["message"]
    assert api.http.post(PATH, content=b'{"prompt": "hi"}', headers=JSON).status_code == 200


def test_a_client_that_sends_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_body, "_BODY_S", 0.01)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("nothing comes")

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    with pytest.raises(APIError) as found:
        asyncio.run(read_body.read_body(Request(scope, receive), 100, dict))
    assert found.value.status == 408


def test_a_long_body_is_read_on_a_thread(api: Api) -> None:
    error = api.error(PATH, prompt="x" * 50_000)
    assert error["code"] == "context_length_exceeded"


class _Body(BaseModel):
    """Fields of which each may be of several types."""

    words: str | Annotated[list[str], Field(min_length=1)] | None = None
    names: Annotated[list[int], Field(max_length=1)] | Annotated[str, Field(max_length=2)] = ""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"words": []}, "words: List should have at least 1 item"),
        ({"words": [1]}, "words.0: Input should be a valid string"),
        ({"words": 1.5}, "words: Input should be a valid string"),
        ({"names": "long"}, "names: String should have at most 2 characters"),
        ({"names": [1, 2]}, "names: List should have at most 1 item"),
    ],
)
def test_of_several_types_the_values_own_says_what_is_wrong(
    body: dict[str, object], message: str
) -> None:
    with pytest.raises(APIError) as found:
        read_body.validated(_Body, body)
    assert found.value.message.startswith(message)
    assert found.value.status == 400
