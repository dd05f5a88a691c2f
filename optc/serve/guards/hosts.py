"""`HostGuard`: answers requests that call the server by one of its names.

A page of another site can let its own name stand for 127.0.0.1, and then asks as if it were this
server's page (DNS rebinding). The header ``Host`` has the page's name all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from optc.serve.api_errors import APIError
from optc.serve.guards.keys import OPEN
from optc.serve.guards.refusal import refusal


class HostGuard:
    """Refuses requests that call the server by another name, but for probes of machines.

    Args:
        app: What answers.
        hosts: Names without ports.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] == "http" and scope["path"] not in OPEN:
            name = host_name(Headers(scope=scope).get("host", ""))
            if name not in self._hosts:
                message = f"the server is not called {name[:128]!r}: --trusted-host adds a name"
                await refusal(APIError(403, message), scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def host_name(host: str) -> str:
    """A header ``Host`` without its port: ``[::1]:80`` is ``::1``."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
