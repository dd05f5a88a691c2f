"""`TracedRequests`: a span around each request of HTTP, which what happens meanwhile is within."""

from __future__ import annotations

from opentelemetry import context
from opentelemetry.trace import set_span_in_context
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from optc.serve.guards.access_log import CLIENT_LEFT, FACTS, POLLED
from optc.serve.tracing.tracing import Tracing

#: Asked by machines again and again.
_UNTRACED = frozenset({"/health", "/ready", "/metrics", "/load", POLLED})


class TracedRequests:
    """Makes spans; within `AccessLog`, whose facts it tells.

    Args:
        app: What answers.
        tracing: Makes them.
    """

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer within a span."""
        if scope["type"] != "http" or scope["path"] in _UNTRACED:
            await self._app(scope, receive, send)
            return
        span = self._tracing.begin(scope["method"], dict(Headers(scope=scope)))
        status = CLIENT_LEFT

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        token = context.attach(set_span_in_context(span))
        try:
            await self._app(scope, receive, noting)
        finally:
            context.detach(token)
            route = getattr(scope.get("route"), "path", "")
            self._tracing.end(span, scope["method"], route, status, scope[FACTS])
