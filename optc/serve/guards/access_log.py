"""`AccessLog`: one line of JSON for each request, which says nothing of what was asked; counters of
requests by route and status."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, cast

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from optc.serve.guards.request_id import HEADER, request_id

#: Where the scope of a request keeps what its line says besides.
FACTS = "optc.facts"
#: Asked by each open status page every second: what goes well has no line.
POLLED = "/status"
#: Written for requests whose client has left: nginx's number.
CLIENT_LEFT = 499


def facts_of(request: Request) -> dict[str, Any]:
    """Further fields of the line of a request; routes add to them."""
    return cast(dict[str, Any], request.scope.setdefault(FACTS, {}))


class AccessLog:
    """Gives each request an id, and writes its line when its answer has ended.

    Args:
        app: What answers.
        write: Takes a line; None writes none.
        count: Told route, method and status of each.
    """

    def __init__(
        self,
        app: ASGIApp,
        write: Callable[[str], None] | None,
        count: Callable[[str, str, int], None],
    ) -> None:
        self._app = app
        self._write = write
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, then write the line."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s, now = time.perf_counter(), time.time()
        facts: dict[str, Any] = {"request_id": request_id(Headers(scope=scope))}
        scope[FACTS] = facts
        status = CLIENT_LEFT

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = facts["request_id"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", "")  # a path may hold anything
            self._count(route or "other", scope["method"], status)
            if self._write is not None and not (scope["path"] == POLLED and status == 200):
                line = {
                    "time": round(now, 3),
                    "method": scope["method"],
                    "path": scope["path"][:256],
                    "status": status,
                    "seconds": round(time.perf_counter() - began_s, 4),
                    **facts,
                }
                self._write(json.dumps(line))
