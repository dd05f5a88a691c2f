"""`KeyGuard`: lets in who has a key; compares in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from optc.serve.api_errors import APIError
from optc.serve.asking.asked import Asker
from optc.serve.context import ASKER
from optc.serve.guards.access_log import FACTS
from optc.serve.guards.refusal import refusal

#: Probes of machines need no key, and say nothing.
OPEN = frozenset({"/health", "/ready"})


class KeyGuard:
    """Refuses requests without a key: all routes but those of `OPEN`.

    Args:
        app: What answers.
        keys: One of them is needed; none let everybody in.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        salt = ""
        if self._digests:
            found = self._found(Headers(scope=scope))
            if found is None:
                error = APIError(
                    401,
                    "no valid key: send the header 'Authorization: Bearer KEY'",
                    None,
                    "invalid_api_key",
                    {"www-authenticate": "Bearer"},
                )
                await refusal(error, scope)(scope, receive, send)
                return
            salt = found.hex()
            scope[FACTS]["key"] = salt[:8]
        scope[ASKER] = Asker(salt, scope[FACTS]["request_id"])
        await self._app(scope, receive, send)

    def _found(self, headers: Headers) -> bytes | None:
        """The digest of the key that was sent, if it is one of ours. Looks at all of them, so that
        the time tells nothing."""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        sent = _digest(given.encode("utf-8", "surrogateescape"))
        found = None
        for digest in self._digests:
            if hmac.compare_digest(digest, sent):
                found = digest
        return found


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
