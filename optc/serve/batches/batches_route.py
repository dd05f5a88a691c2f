"""``/v1/batches``: files of requests that are answered."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from optc.serve.api_errors import APIError
from optc.serve.asking.read_body import read_body, validated
from optc.serve.batches.answer import ENDPOINTS
from optc.serve.batches.context import store_of
from optc.serve.batches.records import Batch
from optc.serve.bodies.base import Body
from optc.serve.context import asker_of, service_of

#: Seconds after which a batch expires, which OpenAI's API fixes.
_WINDOW_S = 24 * 3600
#: Batches of a page, unless a client says how many, and at most.
_PAGE, _MOST = 20, 100


class BatchBody(Body):
    """A file to be answered."""

    input_file_id: str
    endpoint: str
    completion_window: Literal["24h"]
    metadata: dict[str, str] | None = None


async def add_batch(request: Request) -> Response:
    """Begin to answer a file."""
    store, salt = store_of(request), asker_of(request).salt
    body = await read_body(request, service_of(request).settings.limits.body_bytes, _read)
    file = await asyncio.to_thread(store.file, body["input_file_id"], salt)
    now = int(time.time())
    batch = Batch(
        id=f"batch_{uuid.uuid4().hex}",
        salt=salt,
        endpoint=body["endpoint"],
        input=file.id,
        metadata=body.get("metadata"),
        created=now,
        expires=now + _WINDOW_S,
    )
    await asyncio.to_thread(store.add_batch, batch)
    return JSONResponse(batch.to_json())


async def list_batches(request: Request) -> Response:
    """A page of an asker's batches, the latest first."""
    batches = await asyncio.to_thread(store_of(request).batches, asker_of(request).salt)
    after, limit = request.query_params.get("after"), request.query_params.get("limit", str(_PAGE))
    if not limit.isdecimal() or not 1 <= int(limit) <= _MOST:
        raise APIError(400, f"limit goes from 1 to {_MOST}", "limit")
    ids = [one.id for one in batches]
    begin = ids.index(after) + 1 if after in ids else 0
    data = [one.to_json() for one in batches[begin : begin + int(limit)]]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    more = begin + len(data) < len(batches)
    page = {"object": "list", "data": data, "first_id": first, "last_id": last}
    return JSONResponse({**page, "has_more": more})


async def one_batch(request: Request) -> Response:
    """The progress of a batch."""
    name, salt = request.path_params["name"], asker_of(request).salt
    return JSONResponse((await asyncio.to_thread(store_of(request).batch, name, salt)).to_json())


async def cancel_batch(request: Request) -> Response:
    """Answer no more lines of a batch."""
    store = store_of(request)
    name, salt = request.path_params["name"], asker_of(request).salt
    batch = await asyncio.to_thread(store.batch, name, salt)
    if batch.ends:
        raise APIError(409, f"the batch has ended: it is {batch.status}", "batch_id")
    return JSONResponse((await asyncio.to_thread(store.change, name, "cancelling")).to_json())


def _read(body: dict[str, Any]) -> dict[str, Any]:
    validated(BatchBody, body)
    if body["endpoint"] not in ENDPOINTS:
        message = f"{body['endpoint'][:128]!r} is not answered: {' or '.join(ENDPOINTS)}"
        raise APIError(400, message, "endpoint")
    return body
