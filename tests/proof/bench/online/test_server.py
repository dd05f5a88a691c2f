"""Models of a server, before the load begins."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the extra 'serve' is not installed")

from optc.errors import InputError, OptcError, UnavailableError
from optc.proof.bench.online.prompts import WORDS
from optc.proof.bench.online.server import ServedModel, address, find_model
from tests.proof.bench.online.scripted import refusing, scripted


def found(models: Any, name: str | None = None, **handlers: Any) -> ServedModel:
    said = models if callable(models) else refusing(200, models)

    async def run() -> ServedModel:
        async with scripted(models=said, **handlers) as url:
            return await find_model(url, name, "key")

    return asyncio.run(run())


LISTED = json.dumps({"data": [{"id": "a", "max_model_len": 64}, {"id": "b"}]})


def test_the_first_model_or_the_named_one() -> None:
    assert found(LISTED) == ServedModel("a", 64, None)
    assert found(LISTED, "b") == ServedModel("b", None, None)


def test_tokens_of_words() -> None:
    async def answer(request: Any) -> Any:
        from aiohttp import web

        assert request.headers["authorization"] == "Bearer key"
        return web.json_response({"count": 3 * len(WORDS)})

    assert found(LISTED, tokenize=answer).tokens_per_word == 3.0
    assert found(LISTED, tokenize=refusing(200, "[]")).tokens_per_word is None


@pytest.mark.parametrize(
    ("models", "name", "kind", "message"),
    [
        (LISTED, "c", InputError, "--model: the server has no model 'c' (it has a, b)"),
        (refusing(401, ""), None, InputError, "does not take this key (OPTC_API_KEY"),
        (refusing(503, "loading"), None, UnavailableError, "answers 503 to /v1/models: loading"),
        ("{}", None, UnavailableError, "lists no models"),
        ("<html>", None, UnavailableError, "lists no models"),
    ],
)
def test_what_is_wrong(models: Any, name: str | None, kind: type[OptcError], message: str) -> None:
    with pytest.raises(kind) as caught:
        found(models, name)
    assert message in caught.value.render()


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_addresses(url: str) -> None:
    assert address(url) == "http://h:1"


def test_no_address() -> None:
    with pytest.raises(InputError, match="'localhost:8000' is no address of a server"):
        address("localhost:8000")
