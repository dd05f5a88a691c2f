"""``/v1/completions`` and ``/v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from optc.runtime.handle import Handle
from optc.serve.answering.chat import ChatWriter
from optc.serve.answering.completion import CompletionWriter
from optc.serve.answering.streams import cancel_all, check_output, chunks
from optc.serve.answering.usage import usage_of
from optc.serve.answering.writer import Writer, whole_choices
from optc.serve.asking.asked import Asked, Asker
from optc.serve.asking.chat import ask_chat
from optc.serve.asking.completion import ask_completion
from optc.serve.asking.read_body import read_body
from optc.serve.context import asker_of, service_of
from optc.serve.event_stream import EventStream, unless_left
from optc.serve.guards.access_log import facts_of
from optc.serve.models import ModelTable
from optc.serve.settings import Limits

Ask = Callable[[dict[str, Any], ModelTable, Asker, Limits], Asked]


async def completions(request: Request) -> Response:
    """Continue texts."""
    return await _answer(request, ask_completion, lambda asked, prompt: CompletionWriter(asked))


async def chat_completions(request: Request) -> Response:
    """The next message of a conversation."""
    return await _answer(request, ask_chat, ChatWriter)


async def _answer(
    request: Request, ask: Ask, writer_of: Callable[[Asked, Sequence[int]], Writer]
) -> Response:
    service, asker = service_of(request), asker_of(request)
    limits, facts = service.settings.limits, facts_of(request)
    with service.preparing():
        read = lambda body: ask(body, service.models, asker, limits)  # noqa: E731
        asked = await read_body(request, limits.body_bytes, read)
        facts |= {"model": asked.model.name, "stream": asked.stream}
        handles = await unless_left(request.receive, service.begin(asked))
    writer = writer_of(asked, handles[0].prompt_token_ids)
    facts["prompt_tokens"] = sum(len(handle.prompt_token_ids) for handle in handles)
    if asked.stream:
        return EventStream(chunks(asked, handles, writer, facts), service.settings.ping_s)
    return await unless_left(request.receive, _whole(asked, handles, writer, facts))


async def _whole(
    asked: Asked, handles: list[Handle], writer: Writer, facts: dict[str, Any]
) -> Response:
    try:
        outputs = [check_output(await handle) for handle in handles]
    finally:
        cancel_all(handles)
    facts["completion_tokens"] = sum(output.output_tokens for output in outputs)
    choices = whole_choices(writer, outputs)
    return JSONResponse(writer.envelope.whole(choices, usage_of(asked, outputs)))
