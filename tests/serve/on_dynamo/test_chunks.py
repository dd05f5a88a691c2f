"""Chunks for Dynamo's frontend: the tokens of an answer, and one end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from optc.errors import RequestError
from optc.runtime.handle import Handle
from optc.runtime.outputs import Completion, Delta, FinishReason
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.scoring.token_logprobs import TokenLogprobs
from optc.serve.answering.pace import Pace
from optc.serve.on_dynamo.chunks import chunks_of


def ended(handle: Handle, reason: FinishReason, error: RequestError | None = None) -> None:
    handle.finish(Completion(0, "", (), reason, None, RequestMetrics(0.0), error))


async def read(handle: Handle) -> list[dict[str, Any]]:
    return [chunk async for chunk in chunks_of(handle, Pace(0.0))]


@pytest.mark.parametrize(("reason", "told"), [("stop", "stop"), ("deadline", "length")])
def test_tokens_and_their_end(reason: FinishReason, told: str) -> None:
    handle = Handle((1, 2, 3), 1, lambda handle: None)
    scored = (TokenLogprobs(7, -0.5, ((8, -0.25), (7, -0.5))),)
    handle.push(Delta(0, "a", (7,), scored))
    first = asyncio.run(read_one(handle))
    assert first == {
        "token_ids": [7],
        "index": 0,
        "log_probs": [-0.5],
        "top_logprobs": [
            [
                {"rank": 1, "token_id": 8, "token": None, "logprob": -0.25},
                {"rank": 2, "token_id": 7, "token": None, "logprob": -0.5},
            ]
        ],
    }
    handle.push(Delta(0, "b", (9, 9), finish_reason=reason))
    ended(handle, reason)
    assert asyncio.run(read(handle)) == [
        {
            "token_ids": [9, 9],
            "index": 0,
            "finish_reason": told,
            "completion_usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        }
    ]


async def read_one(handle: Handle) -> dict[str, Any]:
    """The first chunk; the stream is left then."""
    chunks = chunks_of(handle, Pace(0.0))
    found = await anext(chunks)
    await chunks.aclose()
    return found


def test_who_leaves_cancels() -> None:
    cancelled: list[Handle] = []
    handle = Handle((1,), 1, cancelled.append)
    handle.push(Delta(0, "a", (7,)))
    asyncio.run(read_one(handle))
    assert cancelled == [handle]


def test_a_request_that_fails_says_why() -> None:
    handle = Handle((1,), 1, lambda handle: None)
    handle.push(Delta(0, "", (), finish_reason="error"))
    ended(handle, "error", RequestError("its grammar fails", where="output token 3"))
    with pytest.raises(RequestError, match="its grammar fails"):
        asyncio.run(read(handle))
