"""``/v1/responses``, ``/v1/responses/ID`` and what may be done with one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from optc.runtime.handle import Handle
from optc.serve.answering.streams import cancel_all, check_output
from optc.serve.answering.turns import turn_events
from optc.serve.api_errors import APIError
from optc.serve.asking.counting import count_chat
from optc.serve.asking.read_body import read_body
from optc.serve.context import asker_of, service_of
from optc.serve.event_stream import EventStream, unless_left
from optc.serve.guards.access_log import facts_of
from optc.serve.responses.ask import AskedResponse, ask_input_tokens, ask_response
from optc.serve.responses.kept import Kept, KeptResponse
from optc.serve.responses.write import ResponseWriter


async def responses(request: Request) -> Response:
    """Go on with a conversation."""
    service, asker, kept = service_of(request), asker_of(request), _kept(request)
    limits, facts = service.settings.limits, facts_of(request)
    published = service.published.timer()
    with service.preparing():
        read = lambda body: ask_response(body, service.models, asker, limits, kept)  # noqa: E731
        asked = await read_body(request, limits.body_bytes, read)
        facts |= {"model": asked.asked.model.name, "stream": asked.asked.stream}
        (handle,) = await service.begin(asked.asked, asker.request_id)
    facts["prompt_tokens"] = len(handle.prompt_token_ids)
    writer = ResponseWriter(asked)
    if asked.asked.stream:
        note = partial(published, asked.asked.model.engine)
        events = _streamed(handle, writer, asked, request, note)
        return EventStream(events, service.settings.ping_s)
    answer = await unless_left(request.receive, _whole(handle, writer, facts))
    _keep(request, asked, writer, answer)
    return JSONResponse(answer)


async def input_tokens(request: Request) -> Response:
    """The number of tokens of a conversation."""
    service, asker, kept = service_of(request), asker_of(request), _kept(request)
    with service.preparing():
        read = lambda body: ask_input_tokens(body, asker, kept)  # noqa: E731
        chat = await read_body(request, service.settings.limits.body_bytes, read)
        count = await asyncio.to_thread(count_chat, chat, service.models)
    return JSONResponse({"object": "response.input_tokens", "input_tokens": count})


async def one_response(request: Request) -> Response:
    """One that is kept.

    Raises:
        APIError: There is none, or its events are wanted, which are not kept.
    """
    if request.query_params.get("stream") == "true":
        raise APIError(400, "stream is not supported here: the response has ended", "stream")
    found = _kept(request).find(request.path_params["name"], asker_of(request).salt)
    return JSONResponse(found.response)


async def remove_response(request: Request) -> Response:
    """Forget one."""
    name = request.path_params["name"]
    _kept(request).remove(name, asker_of(request).salt)
    return JSONResponse({"id": name, "object": "response.deleted", "deleted": True})


async def cancel_response(request: Request) -> Response:
    """Nothing that is kept runs any more.

    Raises:
        APIError: Always: only responses in the background could be cancelled.
    """
    _kept(request).find(request.path_params["name"], asker_of(request).salt)
    raise APIError(400, "the response has ended; close its connection to cancel one that runs")


async def _whole(handle: Handle, writer: ResponseWriter, facts: dict[str, Any]) -> dict[str, Any]:
    try:
        output = check_output(await handle)
    finally:
        cancel_all([handle])
    facts["completion_tokens"] = output.output_tokens
    return writer.whole(output)


async def _streamed(
    handle: Handle,
    writer: ResponseWriter,
    asked: AskedResponse,
    request: Request,
    published: Callable[[], None],
) -> AsyncGenerator[bytes, None]:
    """The events of a stream; the response is kept before the last one is sent."""
    pace = service_of(request).pace
    events = turn_events(handle, writer, facts_of(request), pace, published)
    try:
        async for data in events:
            if writer.finished is not None:
                _keep(request, asked, writer, writer.finished)
            yield data
    finally:
        await events.aclose()


def _keep(
    request: Request, asked: AskedResponse, writer: ResponseWriter, response: dict[str, Any]
) -> None:
    if asked.body.get("store") is not False:
        messages = [*asked.messages, writer.message()]
        _kept(request).add(KeptResponse(response, messages, asker_of(request).salt))


def _kept(request: Request) -> Kept:
    return cast(Kept, request.app.state.responses)
