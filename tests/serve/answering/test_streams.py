"""Deltas that came while nobody looked are one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from optc.runtime.handle import Handle
from optc.runtime.outputs import Completion, Delta
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.threads.waking import Waker
from optc.serve.answering.pace import Pace
from optc.serve.answering.streams import come_together


def completion(index: int) -> Completion:
    return Completion(index, "", (), "stop", None, RequestMetrics(0.0))


async def read(pace: Pace) -> list[list[Delta]]:
    """The chunks for a reader who is late behind the first delta."""
    handle = Handle((1,), 2, lambda handle: None)
    handle.push(Delta(0, "a", (1,)))
    found: list[list[Delta]] = []
    async for place, deltas in come_together(handle, pace, 7):
        assert place == 7
        if not found:
            for index, text in ((1, "x"), (0, "b"), (1, "y"), (0, "c")):
                handle.push(Delta(index, text, (ord(text),)))
            handle.finish(completion(0))
            handle.finish(completion(1))
        found.append(deltas)
    return found


def test_one_delta_of_each_completion() -> None:
    assert asyncio.run(read(Pace(0.0))) == [
        [Delta(0, "a", (1,))],
        [Delta(1, "xy", (ord("x"), ord("y"))), Delta(0, "bc", (ord("b"), ord("c")))],
    ]


class Noted(Pace):
    """Says before which rests the streams sent, and that they rest at all."""

    def __init__(self) -> None:
        super().__init__(0.02)
        self.gaps_s: list[float] = []

    async def rest(self, gap_s: float, waker: Waker, ended: Callable[[], bool]) -> None:
        self.gaps_s.append(gap_s)


def test_a_stream_rests_between_chunks_and_not_before_its_end() -> None:
    async def main() -> list[float]:
        pace, handle = Noted(), Handle((1,), 1, lambda handle: None)
        handle.push(Delta(0, "a", (1,)))
        async for _, (delta,) in come_together(handle, pace):
            if delta.text == "a":
                handle.push(Delta(0, "b", (2,)))
            elif delta.text == "b":
                handle.push(Delta(0, "c", (3,)))
                handle.finish(completion(0))
        return pace.gaps_s

    assert len(asyncio.run(main())) == 1


def test_a_text_that_ends_while_its_stream_rests_is_sent_at_once() -> None:
    async def main() -> list[str]:
        handle, texts = Handle((1,), 1, lambda handle: None), []
        handle.push(Delta(0, "a", (1,)))
        async for _, (delta,) in come_together(handle, Pace(3600.0)):
            texts.append(delta.text)
            if delta.text == "a":  # another thread ends it once the stream rests
                loop = asyncio.get_running_loop()
                loop.call_soon(loop.run_in_executor, None, end, handle)
        return texts

    def end(handle: Handle) -> None:
        handle.push(Delta(0, "b", (2,)))
        handle.push(Delta(0, "c", (3,)))
        handle.finish(completion(0))

    assert "".join(asyncio.run(asyncio.wait_for(main(), 60))) == "abc"
