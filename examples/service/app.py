"""A service on FastAPI around one artifact: answers as a stream or whole, health and metrics.

    pip install optc fastapi uvicorn
    OPTC_ARTIFACT=artifacts/model uvicorn app:app

docs/how-to/serve-in-an-application.md says why each part is as it is.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from metrics import prometheus
from pydantic import BaseModel, Field

import optc
from optc.runtime.stream import Stream

#: Requests that may wait for a place in the engine; one more is told to come back.
MAX_WAITING = 64
RETRY_AFTER_S = 1


class Question(BaseModel):
    """The body of a request."""

    prompt: str
    max_tokens: int = Field(64, ge=1, le=1024)
    temperature: float = Field(0.0, ge=0.0, le=2.0)

    def params(self) -> optc.SamplingParams:
        """The part that the engine reads."""
        return optc.SamplingParams(max_tokens=self.max_tokens, temperature=self.temperature)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Load the engine in the process that serves: one that was forked has none."""
    with optc.load(os.environ["OPTC_ARTIFACT"], max_waiting=MAX_WAITING) as engine:
        app.state.engine = engine
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/stream")
async def stream(question: Question) -> StreamingResponse:
    """The answer as lines of JSON, as it is made."""
    # What is wrong with the request is raised here, before a status is sent.
    deltas = await app.state.engine.stream(question.prompt, question.params())
    return StreamingResponse(_lines(deltas), media_type="application/x-ndjson")


async def _lines(deltas: Stream) -> AsyncIterator[str]:
    async with aclosing(deltas):  # a client that leaves ends its request
        async for delta in deltas:
            yield json.dumps({"text": delta.text, "finish_reason": delta.finish_reason}) + "\n"


@app.post("/answer")
async def answer(question: Question, request: Request) -> dict[str, Any]:
    """The whole answer; its request ends when the client leaves."""
    handle = await app.state.engine.asubmit(question.prompt, question.params())
    gone = asyncio.ensure_future(_disconnected(request))
    gone.add_done_callback(lambda _: handle.cancel())
    try:
        result = await handle
    finally:
        gone.cancel()
    result.raise_for_error()
    return {"text": result.text, "finish_reason": result.finish_reason}


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@app.get("/health")
async def health() -> JSONResponse:
    """The process should go on: its engine has not failed."""
    state = app.state.engine.health()
    return JSONResponse(state.to_json(), 200 if state.alive else 503)


@app.get("/ready")
async def ready() -> JSONResponse:
    """One more request may be sent here now."""
    state = app.state.engine.health()
    return JSONResponse(state.to_json(), 200 if state.ready else 503)


@app.get("/metrics")
async def metrics() -> PlainTextResponse:
    """All figures as Prometheus reads them."""
    return PlainTextResponse(prometheus(app.state.engine))


@app.exception_handler(optc.OptcError)
async def refused(_: Request, error: optc.OptcError) -> JSONResponse:
    """Errors of optc: the client's are 400, a full queue is 503, the rest is 500."""
    if isinstance(error, optc.BusyError):
        return JSONResponse(error.to_json(), 503, {"Retry-After": str(RETRY_AFTER_S)})
    return JSONResponse(error.to_json(), 400 if isinstance(error, optc.RequestError) else 500)
