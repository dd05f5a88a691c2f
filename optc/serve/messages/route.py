"""``/v1/messages`` and ``/v1/messages/count_tokens``."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from optc.runtime.handle import Handle
from optc.serve.answering.streams import cancel_all, check_output
from optc.serve.answering.turns import turn_events
from optc.serve.asking.counting import count_chat
from optc.serve.asking.read_body import read_body
from optc.serve.context import asker_of, service_of
from optc.serve.event_stream import EventStream, unless_left
from optc.serve.guards.access_log import facts_of
from optc.serve.messages.ask import ask_count, ask_message
from optc.serve.messages.write import MessageWriter


async def messages(request: Request) -> Response:
    """The next message of a conversation."""
    service, asker = service_of(request), asker_of(request)
    limits, facts = service.settings.limits, facts_of(request)
    published = service.published.timer()
    with service.preparing():
        read = lambda body: ask_message(body, service.models, asker, limits)  # noqa: E731
        asked = await read_body(request, limits.body_bytes, read)
        facts |= {"model": asked.model.name, "stream": asked.stream}
        (handle,) = await service.begin(asked, asker.request_id)
    facts["prompt_tokens"] = len(handle.prompt_token_ids)
    writer = MessageWriter(asked, handle.prompt_token_ids)
    if asked.stream:
        note = partial(published, asked.model.engine)
        events = turn_events(handle, writer, facts, service.pace, note)
        return EventStream(events, service.settings.ping_s)
    return JSONResponse(await unless_left(request.receive, _whole(handle, writer, facts)))


async def count_tokens(request: Request) -> Response:
    """The number of tokens of a conversation."""
    service = service_of(request)
    with service.preparing():
        chat = await read_body(request, service.settings.limits.body_bytes, ask_count)
        count = await asyncio.to_thread(count_chat, chat, service.models)
        return JSONResponse({"input_tokens": count})


async def _whole(handle: Handle, writer: MessageWriter, facts: dict[str, Any]) -> dict[str, Any]:
    try:
        output = check_output(await handle)
    finally:
        cancel_all([handle])
    facts["completion_tokens"] = output.output_tokens
    return writer.whole(output)
