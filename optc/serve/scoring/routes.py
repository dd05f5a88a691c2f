"""``/v1/rerank``, ``/v1/score`` and ``/v1/classify``, and their other names."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from optc.serve.asking.read_body import read_body
from optc.serve.bodies.base import Body
from optc.serve.context import service_of
from optc.serve.event_stream import unless_left
from optc.serve.guards.access_log import facts_of
from optc.serve.models import ModelTable
from optc.serve.scoring.ask import AskedWork, ask_classify, ask_rerank, ask_score
from optc.serve.scoring.bodies import ClassifyBody, RerankBody, ScoreBody

Ask = Callable[[dict[str, Any], ModelTable], AskedWork]


async def rerank(request: Request) -> Response:
    """Texts by how well they answer a query."""
    return await _answer(request, ask_rerank, "rerank")


async def score(request: Request) -> Response:
    """Scores of pairs of texts."""
    return await _answer(request, ask_score, "score")


async def classify(request: Request) -> Response:
    """Classes of texts or images, or labelled parts of texts."""
    return await _answer(request, ask_classify, "classify")


#: Handlers and bodies by path. Cohere's clients ask the second version, Jina's the first.
SCORING: dict[str, tuple[Callable[..., Any], type[Body]]] = {
    "/v1/rerank": (rerank, RerankBody),
    "/v2/rerank": (rerank, RerankBody),
    "/rerank": (rerank, RerankBody),
    "/v1/score": (score, ScoreBody),
    "/score": (score, ScoreBody),
    "/v1/classify": (classify, ClassifyBody),
    "/classify": (classify, ClassifyBody),
}


async def _answer(request: Request, ask: Ask, kind: str) -> Response:
    service, facts = service_of(request), facts_of(request)
    with service.preparing():
        read = lambda body: ask(body, service.models)  # noqa: E731
        asked = await read_body(request, service.settings.limits.body_bytes, read)
        facts["model"] = asked.model.name
        found, tokens = await unless_left(request.receive, asked.model.queue.run(asked.work))
    facts["prompt_tokens"] = tokens
    answer = {
        "id": f"{kind}-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": asked.model.name,
        **found,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    content = await asyncio.to_thread(msgspec.json.encode, answer)  # of many texts it is long
    return Response(content, media_type="application/json")
