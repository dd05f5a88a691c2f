"""`APIError`: what is wrong with a request, in the form of OpenAI's API.

https://platform.openai.com/docs/guides/error-codes
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from optc.errors import BusyError, EngineError, OptcError, ReplicaLostError, RequestError

#: How the message of a sampling parameter that is out of its range begins.
_PARAMETER = re.compile(r"(\w+)(?:\[.*?\])?=")
#: Where an error of the runtime says that a prompt does not fit.
_LONG = re.compile(r"the prompt has .* the context holds", re.DOTALL)
#: Clients ask again after so many seconds.
RETRY_S = 1
#: Status of an answer whose request has no room on the server's disk.
NO_ROOM = 507
#: ``type`` of an error by its status.
_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
    507: "server_error",
}


class APIError(Exception):
    """An answer that says what is wrong.

    Args:
        status: Of HTTP.
        message: What is wrong and what to do.
        param: The field that is wrong; None where it is no single one.
        code: OpenAI's name of the error; None where it has none.
        headers: Of the answer, besides.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers

    def to_json(self) -> dict[str, Any]:
        """The body of the answer, and the datum of a stream."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        values = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": values}

    def to_bytes(self) -> bytes:
        """`to_json` as bytes."""
        return json.dumps(self.to_json()).encode()


def later(status: int, message: str, code: str | None = None) -> APIError:
    """An answer after which clients ask again."""
    return APIError(status, message, None, code, {"retry-after": str(RETRY_S)})


def of_error(error: OptcError) -> APIError:
    """The error that a client is told for one of the runtime: nothing that it did is a 5xx."""
    if isinstance(error, BusyError):
        return later(429, "too many requests wait; ask again later", "rate_limit_exceeded")
    if isinstance(error, ReplicaLostError):
        return later(503, f"{error.message}; ask again", "replica_lost")
    if isinstance(error, EngineError):
        cause = error.__cause__
        if cause is None:  # it was closed
            return later(503, "the server is shutting down")
        if isinstance(cause, RequestError | EngineError | BusyError):
            return of_error(cause)
        return APIError(500, "the engine failed; the server's log says why", None, "engine_failed")
    stated = _PARAMETER.match(error.message)
    param = stated[1] if stated else _field(error.where)
    code = "context_length_exceeded" if _LONG.match(error.message) else None
    hint = f" ({error.hint})" if error.hint else ""
    return APIError(400, f"{error.message}{hint}", param, code)


def _field(where: str) -> str | None:
    """The field that ``where`` names, as ``json_schema, at /properties`` does."""
    first = where.partition(",")[0]
    return first if re.fullmatch(r"[\w.\[\]]+", first) else None
