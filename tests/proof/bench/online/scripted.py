"""A server in this process whose answers are told, byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Handler = Any


def event(**value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def text(words: str, **more: Any) -> bytes:
    return event(choices=[{"index": 0, "text": words}], **more)


DONE = b"data: [DONE]\n\n"


def streaming(parts: Sequence[bytes], *, kind: str = "text/event-stream") -> Handler:
    """Answers by these parts, each sent on its own."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": kind})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
            await asyncio.sleep(0.002)
        return response

    return answer


def refusing(status: int, said: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=said)

    return answer


async def leaving(request: web.Request) -> web.StreamResponse:
    """Closes the connection within the answer."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    await response.write(text("a"))
    assert request.transport is not None
    request.transport.abort()
    return response


async def hanging(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    raise AssertionError("nobody waits so long")


@asynccontextmanager
async def scripted(**handlers: Handler) -> AsyncIterator[str]:
    """The address of a server that has these routes: ``completions``, ``models``, ``tokenize``."""
    paths = {
        "completions": ("POST", "/v1/completions"),
        "models": ("GET", "/v1/models"),
        "tokenize": ("POST", "/tokenize"),
    }
    app = web.Application()
    for name, handler in handlers.items():
        app.router.add_route(*paths[name], handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
