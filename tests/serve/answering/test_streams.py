"""Deltas that came while nobody looked are one."""

from __future__ import annotations

import asyncio

import pytest

from optc.runtime.handle import Handle
from optc.runtime.outputs import Completion, Delta
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.serve.answering.streams import come_together


def completion(index: int) -> Completion:
    return Completion(index, "", (), "stop", None, RequestMetrics(0.0))


async def read(pause_s: float) -> list[list[Delta]]:
    """The chunks for a reader who is late behind the first delta."""
    handle = Handle((1,), 2, lambda handle: None)
    handle.push(Delta(0, "a", (1,)))
    found = []
    async for deltas in come_together(handle, pause_s):
        if not found:
            for index, text in ((1, "x"), (0, "b"), (1, "y"), (0, "c")):
                handle.push(Delta(index, text, (ord(text),)))
            handle.finish(completion(0))
            handle.finish(completion(1))
        found.append(deltas)
    return found


@pytest.mark.parametrize("pause_s", [0.0, 0.02])
def test_one_delta_of_each_completion(pause_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("optc.serve.answering.streams.asyncio.sleep", note)
    assert asyncio.run(read(pause_s)) == [
        [Delta(0, "a", (1,))],
        [Delta(1, "xy", (ord("x"), ord("y"))), Delta(0, "bc", (ord("b"), ord("c")))],
    ]
    assert pauses == ([pause_s] * 2 if pause_s else [])
