"""`ask`: one streamed request, and the times of its chunks."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from optc.proof.bench.online.events import EventReader
from optc.proof.bench.online.prompts import Asking
from optc.proof.bench.online.server import ServerUnderLoad
from optc.proof.bench.online.stream_times import StreamTimes

_DONE = b"[DONE]"
#: Characters of an error that are kept.
_SHOWN = 200


@dataclass(frozen=True)
class Failure:
    """The reason why an answer did not come.

    Attributes:
        kind: ``connect``, ``timeout``, ``disconnect``, ``status 429`` and so on, ``stream`` (an
            error as an event), ``cut`` (the stream ended before the answer), ``form`` (no stream of
            OpenAI's).
        message: What was said.
    """

    kind: str
    message: str


@dataclass
class Answer:
    """One request and what came of it.

    Attributes:
        times: Of its chunks with text.
        prompt_tokens: As the server counts them; None is not stated.
        counted: The server said how many tokens the answer has; else each chunk counts as one.
        failure: Why it failed; None is an answer.
    """

    times: StreamTimes
    prompt_tokens: int | None = None
    counted: bool = False
    failure: Failure | None = None
    ended: bool = field(default=False, repr=False)


async def ask(
    session: aiohttp.ClientSession, server: ServerUnderLoad, asking: Asking, arrived_s: float
) -> Answer:
    """Send a request and read its stream to the end.

    Args:
        session: Of the server.
        server: What is asked.
        asking: The request.
        arrived_s: From when on its times count, on ``time.perf_counter``.
    """
    answer = Answer(StreamTimes(arrived_s))
    try:
        if not await _exchange(session, server, asking, answer):
            # A kept connection may be closed by the server as it is taken (RFC 9112, 9.3.1).
            async with server.session(kept=False) as fresh:
                await _exchange(fresh, server, asking, answer)
    except TimeoutError:
        answer.failure = Failure("timeout", f"no end after {server.timeout_s:g} s")
    except aiohttp.ClientConnectorError as error:
        answer.failure = Failure("connect", _said(error))
    except aiohttp.ClientError as error:
        answer.failure = Failure("disconnect", _said(error))
    answer.times.finished_s = time.perf_counter()
    if not answer.counted:
        answer.times.tokens = len(answer.times.token_times_s)
    return answer


async def _exchange(
    session: aiohttp.ClientSession, server: ServerUnderLoad, asking: Asking, answer: Answer
) -> bool:
    """Send the request and read the answer; False if the connection was closed before it began."""
    try:
        response = await session.post(server.path, data=server.body(asking))
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
        answer.failure = Failure("disconnect", _said(error))
        return False
    async with response:
        answer.failure = await _refused(response) or await _read(response, answer)
    return True


async def _refused(response: aiohttp.ClientResponse) -> Failure | None:
    if response.status != 200:
        text = await response.text(errors="replace")
        return Failure(f"status {response.status}", text[:_SHOWN])
    if response.content_type != "text/event-stream":
        return Failure("form", f"{response.content_type} is no stream of events")
    return None


async def _read(response: aiohttp.ClientResponse, answer: Answer) -> Failure | None:
    reader = EventReader()
    async for data in response.content.iter_any():
        now_s = time.perf_counter()
        for event in reader.feed(data):
            if failure := _take(event, answer, now_s):
                return failure
    if answer.ended:
        return None
    return Failure("cut", "the stream ended before its answer")


def _take(event: bytes, answer: Answer, now_s: float) -> Failure | None:
    """Note what an event says."""
    if event == _DONE:
        answer.ended = True
        return None
    try:
        value = json.loads(event)
        if error := value.get("error"):
            return Failure("stream", str(error)[:_SHOWN])
        for choice in value.get("choices") or ():
            if _has_text(choice):
                answer.times.token_times_s.append(now_s)
        _count(answer, value.get("usage") or {})
    except (ValueError, AttributeError, TypeError):
        return Failure("form", f"no chunk of OpenAI's: {event[:_SHOWN].decode(errors='replace')}")
    return None


def _has_text(choice: dict[str, Any]) -> bool:
    """A chunk of text, of thoughts or of a call; not the one that says who speaks."""
    delta = choice.get("delta") or {}
    named = ("content", "reasoning", "reasoning_content", "tool_calls", "refusal")
    return bool(choice.get("text")) or any(delta.get(name) for name in named)


def _count(answer: Answer, usage: dict[str, Any]) -> None:
    if "completion_tokens" in usage:
        answer.times.tokens = int(usage["completion_tokens"])
        answer.counted = True
    if "prompt_tokens" in usage:
        answer.prompt_tokens = int(usage["prompt_tokens"])


def _said(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_SHOWN]
