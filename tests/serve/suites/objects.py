"""Objects that openai-python's suite takes for granted: it was made for a mock, which answers for
any id. Each request for one of its ids is for a new object here."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx2

ASGIApp = Callable[..., Awaitable[None]]
MODEL = "gpt-6-astra"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
LINE = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": BODY}


async def _response(http: httpx2.AsyncClient) -> Any:
    return await http.post("/v1/responses", json={"model": MODEL, "input": "hi"})


async def _file(http: httpx2.AsyncClient) -> Any:
    file = ("lines.jsonl", json.dumps(LINE).encode())
    return await http.post("/v1/files", files={"file": file}, data={"purpose": "batch"})


async def _batch(http: httpx2.AsyncClient) -> Any:
    file = (await _file(http)).json()["id"]
    body = {"input_file_id": file, "endpoint": LINE["url"], "completion_window": "24h"}
    return await http.post("/v1/batches", json=body)


#: Makes an object, by the path and the id that the suite spells.
_MAKERS = {
    "/v1/responses/resp_677efb5139a88190b512bc3fef8e535d": _response,
    "/v1/files/file_id": _file,
    "/v1/batches/batch_id": _batch,
}


def with_objects(app: ASGIApp) -> ASGIApp:
    """The application, in which the objects are there."""
    transport = httpx2.ASGITransport(app=app)

    async def wrapped(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        for named, make in _MAKERS.items():
            if path == named or path.startswith(named + "/"):
                async with httpx2.AsyncClient(
                    transport=transport, base_url="http://127.0.0.1"
                ) as http:
                    made = (await make(http)).raise_for_status().json()["id"]
                folder = named.rpartition("/")[0]
                found = f"{folder}/{made}{path.removeprefix(named)}"
                scope.update(path=found, raw_path=found.encode())
        await app(scope, receive, send)

    return wrapped
