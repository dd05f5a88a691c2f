"""``/v1/completions``, ``/v1/chat/completions`` and ``/inference/v1/generate``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from optc.serve.answering.streams import chunks
from optc.serve.answering.whole import CHAT, COMPLETION, TOKENS, Form, whole_answer
from optc.serve.asking.read_body import read_body
from optc.serve.context import asker_of, service_of
from optc.serve.event_stream import EventStream, unless_left
from optc.serve.guards.access_log import facts_of

#: Header by which a client opts in, and is told where its answer is from.
CACHE = "x-optc-cache"


async def completions(request: Request) -> Response:
    """Continue texts."""
    return await _answer(request, COMPLETION)


async def chat_completions(request: Request) -> Response:
    """The next message of a conversation."""
    return await _answer(request, CHAT)


async def generate(request: Request) -> Response:
    """Continue tokens by tokens."""
    return await _answer(request, TOKENS)


async def _answer(request: Request, form: Form) -> Response:
    service, asker = service_of(request), asker_of(request)
    limits, facts = service.settings.limits, facts_of(request)
    published = service.published.timer()
    question = None
    with service.preparing():
        read = lambda body: form.ask(body, service.models, asker, limits)  # noqa: E731
        asked = await read_body(request, limits.body_bytes, read)
        facts |= {"model": asked.model.name, "stream": asked.stream}
        if service.semantic is not None and form is CHAT and wants_meaning(request):
            question = await service.semantic.question(asked, service.models)
            if question is not None and (known := service.semantic.find(question)):
                facts["cache"] = "semantic"
                return JSONResponse(known, headers={CACHE: "semantic-hit"})
        handles = await service.begin(asked, asker.request_id)
    writer = form.writer(asked)
    facts["prompt_tokens"] = sum(len(handle.prompt_token_ids) for handle in handles)
    if asked.stream:
        events = chunks(asked, handles, writer, facts, service.pace, published)
        return EventStream(events, service.settings.ping_s)
    whole = await unless_left(request.receive, whole_answer(asked, handles, writer, facts))
    if service.semantic is None or question is None:
        return JSONResponse(whole)
    service.semantic.keep(question, asked, handles[0], whole)
    return JSONResponse(whole, headers={CACHE: "miss"})


def wants_meaning(request: Request) -> bool:
    """The client takes answers to questions that mean the same."""
    return request.headers.get(CACHE, "").strip().lower() == "semantic"
