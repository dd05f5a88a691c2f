"""Answers single lines of batches, behind what clients wait for."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import Any

from optc.errors import OptcError
from optc.serve.answering.whole import CHAT, COMPLETION, whole_answer
from optc.serve.api_errors import APIError, of_error
from optc.serve.asking.asked import Asker
from optc.serve.batches.lines import Line
from optc.serve.service import Service
from optc.serve.tensors.embeddings import ask_embeddings

#: What lines may be for that write texts.
FORMS = {"/v1/chat/completions": CHAT, "/v1/completions": COMPLETION}
_EMBEDDINGS = "/v1/embeddings"
#: What lines may be for.
ENDPOINTS = (*FORMS, _EMBEDDINGS)
#: Of all lines: below whatever a client states in the range of 32 bits.
_PRIORITY = -(1 << 40)
#: Seconds until a line is tried again for which there was no room.
_AGAIN_S = 0.2


async def answer_line(
    service: Service, endpoint: str, line: Line, salt: str
) -> tuple[dict[str, Any], bool]:
    """The answer of a line as the output has it, and whether it is a failure.

    Args:
        service: Who answers.
        endpoint: What the line is for.
        line: The request.
        salt: Of who asks.

    Raises:
        APIError: The server stops, or its engine has failed: the line has no answer yet.
    """
    try:
        if endpoint == _EMBEDDINGS:
            body = await _embedded(service, line)
        else:
            body = await _answer(service, endpoint, line, salt)
    except (APIError, OptcError) as error:
        told = of_error(error) if isinstance(error, OptcError) else error
        if told.status >= 500:
            raise told from error
        return _output(line, told.status, told.to_json()), True
    return _output(line, 200, body), False


async def _answer(service: Service, endpoint: str, line: Line, salt: str) -> dict[str, Any]:
    form, asker = FORMS[endpoint], Asker(salt)
    limits = service.settings.limits
    asked = await asyncio.to_thread(form.ask, line.body, service.models, asker, limits)
    last = [replace(request, priority=_PRIORITY) for request in asked.requests]
    asked = replace(asked, requests=tuple(last))
    while True:
        try:
            handles = await service.begin(asked)
            break
        except (APIError, OptcError) as error:
            told = of_error(error) if isinstance(error, OptcError) else error
            if told.status != 429:
                raise
        await asyncio.sleep(_AGAIN_S)
    writer = form.writer(asked)
    return await whole_answer(asked, handles, writer, {})


async def _embedded(service: Service, line: Line) -> dict[str, Any]:
    asked = await asyncio.to_thread(ask_embeddings, line.body, service.models)
    while asked.model.queue.waiting:  # clients wait for those
        await asyncio.sleep(_AGAIN_S)
    return await asked.answer()


def _output(line: Line, status: int, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"batch_req_{uuid.uuid4().hex}",
        "custom_id": line.custom_id,
        "response": {
            "status_code": status,
            "request_id": f"req-{uuid.uuid4().hex}",
            "body": body,
        },
        "error": None,
    }
