"""``/v1/files``: files of requests, and of their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import IO

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from optc.serve.api_errors import APIError
from optc.serve.asking.read_body import bounded
from optc.serve.batches.context import store_of
from optc.serve.batches.store import room
from optc.serve.context import asker_of, service_of

_PART = 1 << 20
_PURPOSE = "batch"


async def add_file(request: Request) -> Response:
    """Keep a file that is sent as a form."""
    store, salt = store_of(request), asker_of(request).salt
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise APIError(415, "send a form (multipart/form-data) with 'file' and 'purpose'")
    body = bounded(request, service_of(request).settings.limits.file_bytes)
    try:
        with room():  # large files are temporary ones meanwhile
            form = await MultiPartParser(request.headers, body, max_files=1, max_fields=8).parse()
    except MultiPartException as error:
        raise APIError(400, f"the form cannot be read: {error.message}") from error
    try:
        file = _checked(form)
        name = (file.filename or "file")[:256]
        kept = await asyncio.to_thread(store.add_file, salt, name, _PURPOSE, _parts(file.file))
    finally:
        await form.close()
    return JSONResponse(kept.to_json())


async def list_files(request: Request) -> Response:
    """All files of an asker."""
    files = await asyncio.to_thread(store_of(request).files, asker_of(request).salt)
    wanted = request.query_params.get("purpose")
    data = [one.to_json() for one in files if wanted in (None, one.purpose)]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    page = {"object": "list", "data": data, "has_more": False}
    return JSONResponse({**page, "first_id": first, "last_id": last})


async def one_file(request: Request) -> Response:
    """The record of a file."""
    name, salt = request.path_params["name"], asker_of(request).salt
    return JSONResponse((await asyncio.to_thread(store_of(request).file, name, salt)).to_json())


async def file_content(request: Request) -> Response:
    """The contents of a file."""
    store = store_of(request)
    name, salt = request.path_params["name"], asker_of(request).salt
    file = await asyncio.to_thread(store.file, name, salt)
    return FileResponse(store.path(file), media_type="application/jsonl")


async def remove_file(request: Request) -> Response:
    """Forget a file."""
    store = store_of(request)
    name, salt = request.path_params["name"], asker_of(request).salt
    await asyncio.to_thread(store.remove_file, await asyncio.to_thread(store.file, name, salt))
    return JSONResponse({"id": name, "object": "file", "deleted": True})


def _checked(form: FormData) -> UploadFile:
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise APIError(400, "the form has no file", "file")
    if form.get("purpose") != _PURPOSE:
        raise APIError(400, f"the purpose of files is {_PURPOSE!r}", "purpose")
    return file


def _parts(stream: IO[bytes]) -> Iterator[bytes]:
    while part := stream.read(_PART):
        yield part
