"""One request to a server that says what it is told."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the extra 'serve' is not installed")

from optc.proof.bench.online.ask import Answer, ask
from optc.proof.bench.online.prompts import Asking
from optc.proof.bench.online.server import ServerUnderLoad
from tests.proof.bench.online.scripted import (
    DONE,
    event,
    hanging,
    leaving,
    refusing,
    scripted,
    streaming,
    text,
)

ASKING = Asking(0.0, "the words", 3)
USAGE = event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 9})


def asked(handler: Any, **options: Any) -> Answer:
    async def run() -> Answer:
        async with scripted(completions=handler) as url:
            server = ServerUnderLoad(url, "m", **options)
            async with server.session() as session:
                return await ask(session, server, ASKING, time.perf_counter())

    return asyncio.run(run())


def test_an_answer() -> None:
    opening = event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])
    found = asked(streaming([b": ping\n\n", opening, text("a"), text("b"), USAGE, DONE]))
    assert found.failure is None
    assert (found.prompt_tokens, found.times.tokens, found.counted) == (5, 9, True)
    assert len(found.times.token_times_s) == 2
    assert found.times.ttft_s is not None
    assert found.times.e2e_s is not None
    assert 0 < found.times.ttft_s < found.times.e2e_s
    assert found.times.tpot_s == pytest.approx(found.times.itl_s[0] / 8)


@pytest.mark.parametrize("name", ["content", "reasoning", "reasoning_content", "tool_calls"])
def test_a_chunk_of_a_chat_counts_whatever_it_says(name: str) -> None:
    chunk = event(choices=[{"index": 0, "delta": {name: "x"}}])
    found = asked(streaming([chunk, chunk, DONE]))
    assert (found.failure, found.times.tokens, found.counted) == (None, 2, False)


@pytest.mark.parametrize(
    ("handler", "kind", "said"),
    [
        (refusing(429, "later"), "status 429", "later"),
        (refusing(500, "broken"), "status 500", "broken"),
        (streaming([b"{}"], kind="application/json"), "form", "application/json is no stream"),
        (streaming([text("a"), b"data: {\n\n"]), "form", "no chunk of OpenAI's: {"),
        (streaming([text("a"), b"data: []\n\n"]), "form", "no chunk of OpenAI's: []"),
        (streaming([text("a"), event(error={"message": "full"}), DONE]), "stream", "full"),
        (streaming([text("a")]), "cut", "ended before its answer"),
        (leaving, "disconnect", ""),
    ],
)
def test_failures(handler: Any, kind: str, said: str) -> None:
    failure = asked(handler).failure
    assert failure is not None
    assert (failure.kind, said in failure.message) == (kind, True)


@pytest.mark.parametrize(("closed", "kind"), [(1, None), (2, "disconnect")])
def test_a_connection_that_the_server_has_closed_is_not_the_last(
    closed: int, kind: str | None
) -> None:
    whole, seen = streaming([text("a"), DONE]), 0

    async def answer(request: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen <= closed:
            request.transport.abort()
        return await whole(request)

    failure = asked(answer).failure
    assert (failure.kind if failure else None) == kind
    assert seen == 2


def test_a_server_that_says_nothing() -> None:
    failure = asked(hanging, timeout_s=0.2).failure
    assert failure is not None
    assert (failure.kind, failure.message) == ("timeout", "no end after 0.2 s")


def test_nobody_listens() -> None:
    with socket.socket() as taken:  # bound, and does not listen
        taken.bind(("127.0.0.1", 0))
        server = ServerUnderLoad(f"http://127.0.0.1:{taken.getsockname()[1]}", "m")

        async def run() -> Answer:
            async with server.session() as session:
                return await ask(session, server, ASKING, time.perf_counter())

        failure = asyncio.run(run()).failure
    assert failure is not None
    assert failure.kind == "connect"


def test_bodies() -> None:
    server = ServerUnderLoad("http://x", "m", more={"top_k": 1})
    body = json.loads(server.body(ASKING))
    assert body == {
        "prompt": "the words",
        "model": "m",
        "max_tokens": 3,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "top_k": 1,
    }
    chat = ServerUnderLoad("http://x", "m", "chat", fixed_length=False)
    assert chat.path == "http://x/v1/chat/completions"
    body = json.loads(chat.body(ASKING))
    assert body["messages"] == [{"role": "user", "content": "the words"}]
    assert "ignore_eos" not in body
