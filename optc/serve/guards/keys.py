"""`KeyGuard`: lets in who has a key; compares in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from optc.serve.admin.routes import ADMIN
from optc.serve.api_errors import APIError
from optc.serve.asking.asked import Asker
from optc.serve.context import ASKER
from optc.serve.guards.access_log import FACTS
from optc.serve.guards.refusal import refusal

#: Probes of machines need no key, and say nothing; nor does the page, which asks for one itself.
OPEN = frozenset({"/health", "/ready", "/v2/health/live", "/v2/health/ready", "/"})


class KeyGuard:
    """Refuses requests without a key: all routes but those of `OPEN`.

    Args:
        app: What answers.
        keys: One of them is needed; none let everybody in.
        admin_keys: One of these is needed by admin routes, if there are any.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str], admin_keys: Sequence[str] = ()) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]
        self._admin_digests = [_digest(key.encode()) for key in admin_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        salt = ""
        is_admin = scope["path"] in ADMIN and self._admin_digests
        if needed := self._admin_digests if is_admin else self._digests:
            found = _found(Headers(scope=scope), needed)
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


def _found(headers: Headers, digests: Sequence[bytes]) -> bytes | None:
    """The digest of the key that was sent, if it is one of these. Looks at all of them, so that the
    time tells nothing."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    sent = _digest(given.encode("utf-8", "surrogateescape"))
    found = None
    for digest in digests:
        if hmac.compare_digest(digest, sent):
            found = digest
    return found


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
