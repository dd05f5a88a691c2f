"""Reads the body of a request: JSON of a bounded size that fits its class."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import ClientDisconnect, Request

from optc.serve.api_errors import APIError
from optc.system.safe_json import JSONError, parse_json

T = TypeVar("T")
#: Bodies of more bytes are read on a thread: shorter ones take less time than that.
_LONG = 1 << 14
#: Seconds that a client has to send a body: who sends slowly must not take the room of others.
_BODY_S = 60
#: Their schemas are checked, and a grammar may be made of them.
_TOOLS = b'"tools"'
#: Characters of a message about a field.
_SHOWN = 300


async def read_body(request: Request, most: int, read: Callable[[dict[str, Any]], T]) -> T:
    """The result of ``read`` on the body; on a thread where that may take long.

    Args:
        request: Of HTTP.
        most: Bytes of its body.
        read: Gets the JSON object.

    Raises:
        APIError: The body is too long, too slow or no JSON object, or as of ``read``.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a page of another site can send others without asking
        raise APIError(415, "send JSON, with the header 'content-type: application/json'")
    data = await read_bytes(request, most)
    work = partial(read_json, data, read)
    takes_long = len(data) > _LONG or _TOOLS in data
    return await asyncio.to_thread(work) if takes_long else work()


def validated(kind: type[BaseModel], value: dict[str, Any]) -> None:
    """Check the types of a body's fields.

    Raises:
        APIError: One is wrong; says which.
    """
    try:
        kind.model_validate(value)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)
        # Of a union, the member that went farthest is the one that is meant; then the one whose
        # type the value has.
        places, first = max(
            ((_places(value, one), one) for one in wrong),
            key=lambda one: (len(one[0]), not one[1]["type"].endswith("_type")),
        )
        path = ".".join(map(str, places))
        missing = first["type"] == "missing"
        message = f"{path} is missing" if missing else f"{path}: {first['msg']}"
        raise APIError(400, message[:_SHOWN], path or None) from error


def read_json(data: bytes, read: Callable[[dict[str, Any]], T]) -> T:
    """The result of ``read`` on a JSON object.

    Raises:
        APIError: The data are none, or as of ``read``.
    """
    try:
        value = parse_json(data)
    except JSONError as error:
        raise APIError(400, f"the body is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise APIError(400, "the body is no JSON object")
    return read(value)


async def read_bytes(request: Request, most: int) -> bytes:
    """The bytes of a body.

    Raises:
        APIError: The body is too long or too slow.
    """
    try:
        async with asyncio.timeout(_BODY_S):
            return b"".join([part async for part in bounded(request, most)])
    except TimeoutError as error:
        raise APIError(408, f"the body took more than {_BODY_S} seconds") from error


async def bounded(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    """The parts of a body of at most so many bytes.

    Raises:
        APIError: It is longer, or the client leaves before its end.
    """
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > most:
        raise _too_long(most)
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise _too_long(most)
            yield part
    except ClientDisconnect as error:
        raise APIError(400, "the client left before its body ended") from error


def _too_long(most: int) -> APIError:
    # The rest of the body is not read: the connection cannot go on.
    message = f"the body has more than {most} bytes, which are allowed"
    return APIError(413, message, headers={"connection": "close"})


def _places(value: Any, error: ErrorDetails) -> list[int | str]:
    """The place of an error in a body, without the names of types that pydantic puts between
    for unions."""
    found: list[int | str] = []
    for place in error["loc"]:
        listed = isinstance(value, list) and isinstance(place, int) and place < len(value)
        if listed or (isinstance(value, dict) and place in value):
            found.append(place)
            value = value[place]
    return [*found, *(error["loc"][-1:] if error["type"] == "missing" else ())]
