"""`EventStream`: a response of server-sent events that pings while it is silent and ends when its
client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")
#: A comment, which clients skip.
_PING = b": ping\n\n"


class ClientLeftError(Exception):
    """Nobody waits for the answer any more."""


class EventStream(Response):
    """Server-sent events.

    Args:
        events: What is sent; closed when the client leaves.
        ping_s: Seconds of silence after which a comment is sent; 0 is never.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], ping_s: float) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"  # nginx must not collect events
        self._events = events
        self._ping_s = ping_s
        self._sent_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all of it."""
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        now = asyncio.get_running_loop().time
        self._sent_s = now()
        writing = asyncio.ensure_future(self._write(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            while not writing.done() and not leaving.done():
                rest = self._sent_s + self._ping_s - now() if self._ping_s else None
                if rest is not None and rest <= 0:
                    await self._send(send, _PING)
                    continue
                both = (writing, leaving)
                await asyncio.wait(both, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _ended(leaving)
            if not writing.done():
                await _ended(writing)
            await self._events.aclose()
        if not writing.cancelled():
            writing.result()

    async def _write(self, send: Send) -> None:
        async for data in self._events:
            await self._send(send, data)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, data: bytes) -> None:
        self._sent_s = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def unless_left(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled when the client leaves.

    Args:
        receive: Of a request whose body has been read.
        work: Computes the answer.

    Raises:
        ClientLeftError: The client left before.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientLeftError
        return working.result()
    finally:
        await _ended(leaving)
        if not working.done():
            await _ended(working)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ended(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
