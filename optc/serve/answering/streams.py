"""The chunks of a stream, from handles of the runtime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from optc.errors import OptcError
from optc.runtime.engine import Engine
from optc.runtime.handle import Handle
from optc.runtime.outputs import Delta, RequestOutput
from optc.serve.answering.envelope import DONE, Envelope
from optc.serve.answering.pace import Pace
from optc.serve.answering.usage import counted, usage_of
from optc.serve.answering.writer import Writer
from optc.serve.api_errors import APIError, later, of_error
from optc.serve.asking.asked import Asked


async def chunks(
    asked: Asked,
    handles: Sequence[Handle],
    writer: Writer,
    facts: dict[str, Any],
    pace: Pace,
    published: Callable[[Engine], None] = lambda engine: None,
) -> AsyncGenerator[bytes, None]:
    """Server-sent events up to ``[DONE]``. What goes wrong meanwhile is an event, too. Who closes
    it cancels the requests.

    Args:
        asked: What was asked for.
        handles: Its requests.
        writer: Writes their choices.
        facts: Where the log finds how many tokens there were, and what went wrong.
        pace: How often each text sends.
        published: Called when there is something to be shown to a user.
    """
    shown, last = False, b""
    envelope, each = writer.envelope, asked.usage == "each"
    read = sum(len(handle.prompt_token_ids) for handle in handles)
    written = 0
    try:
        openings = [writer.opening(choice) for choice in range(len(handles) * asked.n)]
        if begun := _events(envelope, openings, counted(read, 0) if each else None):
            yield begun
        async with aclosing(_merged(handles, pace)) as deltas:
            async for place, come in deltas:
                if any(delta.finish_reason in ("error", "cancelled") for delta in come):
                    handles[place].cancel()  # its other texts
                    check_output(await handles[place])
                written += sum(len(delta.token_ids) for delta in come)
                found = [writer.delta(place * asked.n + delta.index, delta) for delta in come]
                if added := _events(envelope, found, counted(read, written) if each else None):
                    if all(handle.done for handle in handles):
                        last += added  # nothing is waited for any more: it goes out with the end
                    else:
                        yield added
                    if not shown and any(map(_shows, found)):
                        shown = True
                        published(asked.model.engine)
        outputs = [check_output(await handle) for handle in handles]
        if asked.usage != "none":
            last += envelope.chunk([], usage_of(asked, outputs))
    except (OptcError, APIError) as error:
        told = of_error(error) if isinstance(error, OptcError) else error
        facts["error"] = told.status
        last += event(told.to_bytes())
    finally:
        facts["completion_tokens"] = written
        cancel_all(handles)
    yield last + DONE


def check_output(output: RequestOutput) -> RequestOutput:
    """The output, if it is whole.

    Raises:
        RequestError: The request failed.
        APIError: The server has ended it.
    """
    output.raise_for_error()
    if any(one.finish_reason == "cancelled" for one in output.completions):
        raise later(503, "the server is shutting down")
    return output


def cancel_all(handles: Sequence[Handle]) -> None:
    """Cancel what has not ended."""
    for handle in handles:
        if not handle.done:
            handle.cancel()


def event(data: bytes) -> bytes:
    """A server-sent event of one line."""
    return b"data: " + data + b"\n\n"


def _events(envelope: Envelope, choices: Sequence[dict[str, Any] | None], usage: object) -> bytes:
    """A chunk for each choice: many clients look at the first one of a chunk alone."""
    return b"".join(envelope.chunk([one], usage) for one in choices if one is not None)


def _shows(choice: dict[str, Any] | None) -> bool:
    """Has something for a user: a text, a call, or tokens that stand for a text."""
    if choice is None:
        return False
    delta = choice.get("delta") or {}
    parts = (choice.get("text"), delta.get("content"), delta.get("tool_calls"))
    return any(parts) or ("delta" not in choice and bool(choice.get("token_ids")))


async def come_together(
    handle: Handle, pace: Pace, place: int = 0
) -> AsyncGenerator[tuple[int, list[Delta]], None]:
    """Deltas of a handle as they come: at most one of each completion at a time, so that a loop
    that is late has less to do.

    Args:
        handle: Of a request.
        pace: How often they are given.
        place: Given with each.
    """
    now = asyncio.get_running_loop().time
    before_s = 0.0
    with pace.stream(), handle.end_waker() as waker:
        async for delta in handle:
            yield place, _joined(delta, handle.waiting())
            sent_s = now()
            if not handle.done:  # else what is left need not wait
                await pace.rest(sent_s - before_s, waker, lambda: handle.done)
            before_s = sent_s


def _merged(handles: Sequence[Handle], pace: Pace) -> AsyncGenerator[tuple[int, list[Delta]], None]:
    """Deltas of all handles as they come, with the places of the handles."""
    return come_together(handles[0], pace) if len(handles) == 1 else _side_by_side(handles, pace)


async def _side_by_side(
    handles: Sequence[Handle], pace: Pace
) -> AsyncGenerator[tuple[int, list[Delta]], None]:
    queue: asyncio.Queue[tuple[int, list[Delta]] | OptcError | None] = asyncio.Queue()

    async def read(place: int, handle: Handle) -> None:
        try:
            async for found in come_together(handle, pace, place):
                queue.put_nowait(found)
        except OptcError as error:
            queue.put_nowait(error)
        else:
            queue.put_nowait(None)

    readers = [asyncio.create_task(read(place, handle)) for place, handle in enumerate(handles)]
    try:
        left = len(readers)
        while left:
            found = await queue.get()
            if isinstance(found, OptcError):
                raise found
            if found is None:
                left -= 1
            else:
                yield found
    finally:
        for reader in readers:
            reader.cancel()


def _joined(first: Delta, others: Sequence[Delta]) -> list[Delta]:
    """Deltas with those of each completion in one."""
    if not others:
        return [first]
    found: dict[int, list[Delta]] = {first.index: [first]}
    for delta in others:
        found.setdefault(delta.index, []).append(delta)
    return [one.joined(*more) for one, *more in found.values()]
