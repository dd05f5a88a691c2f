"""The id of a request: the client's, if it is a harmless text, else a new one."""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import Headers

HEADER = "x-request-id"
_HARMLESS = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)


def request_id(headers: Headers) -> str:
    """The id of the request with these headers."""
    given = headers.get(HEADER, "")
    return given if _HARMLESS.fullmatch(given) else f"req-{uuid.uuid4().hex}"
