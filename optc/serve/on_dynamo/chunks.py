"""`chunks_of`: an answer, in the chunks that Dynamo's frontend decodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from optc.runtime.handle import Handle
from optc.runtime.outputs import Delta
from optc.runtime.scoring.token_logprobs import TokenLogprobs
from optc.serve.answering.pace import Pace
from optc.serve.answering.streams import come_together
from optc.serve.answering.usage import counted

#: Reasons that Dynamo does not know.
_REASONS = {"deadline": "length"}


async def chunks_of(handle: Handle, pace: Pace) -> AsyncGenerator[dict[str, Any], None]:
    """The chunks of a request. Who closes it cancels the request.

    Args:
        handle: The request's.
        pace: How often it sends.

    Raises:
        RequestError: It failed.
        EngineError: The engine did.
    """
    written = 0
    try:
        async for _, deltas in come_together(handle, pace):
            for delta in deltas:
                written += len(delta.token_ids)
                if delta.finish_reason == "error":
                    (await handle).raise_for_error()
                yield _chunk(delta, len(handle.prompt_token_ids), written)
    finally:
        if not handle.done:
            handle.cancel()


def _chunk(delta: Delta, read: int, written: int) -> dict[str, Any]:
    found: dict[str, Any] = {"token_ids": list(delta.token_ids), "index": delta.index}
    if delta.logprobs:
        found["log_probs"] = [one.logprob for one in delta.logprobs]
        if any(one.top for one in delta.logprobs):
            found["top_logprobs"] = [_top(one) for one in delta.logprobs]
    if delta.finish_reason is not None:
        found["finish_reason"] = _REASONS.get(delta.finish_reason, delta.finish_reason)
        found["completion_usage"] = counted(read, written)
    return found


def _top(position: TokenLogprobs) -> Sequence[dict[str, Any]]:
    """The likeliest tokens of a position; the frontend knows their texts."""
    return [
        {"rank": rank, "token_id": token, "token": None, "logprob": logprob}
        for rank, (token, logprob) in enumerate(position.top, 1)
    ]
