"""`Pace`: streams send each step while that is cheap, and rest together while it is not."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from optc.runtime.threads.waking import Waker
from optc.serve.answering.pace import Pace


@pytest.mark.parametrize(
    ("streams", "cores", "pause_s"),
    [
        (0, 2, 0.0),
        (1, 2, 0.00024),
        (16, 2, 0.00384),
        (16, 8, 0.00096),
        (16, 64, 0.000768),
        (200, 2, 0.02),
    ],
)
def test_the_pause_follows_from_what_chunks_cost(streams: int, cores: int, pause_s: float) -> None:
    pace = Pace(cores=cores)
    with ExitStack() as stack:
        for _ in range(streams):
            stack.enter_context(pace.stream())
        assert pace.pause_s == pytest.approx(pause_s)
    assert pace.pause_s == 0


def test_a_stated_pause_is_kept() -> None:
    pace = Pace(0.25, cores=1)
    with pace.stream():
        assert pace.pause_s == 0.25


class Timers:
    """Timers of an event loop that are due when they are told.

    Args:
        loop: That runs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.due: list[tuple[float, object]] = []
        loop.call_later = self._later  # type: ignore[method-assign, assignment]

    def _later(self, seconds: float, call: object) -> None:
        self.due.append((seconds, call))

    def fire(self) -> None:
        """They are due."""
        due, self.due = self.due, []
        for _, call in due:
            call()  # type: ignore[operator]


async def rest(pace: Pace, gap_s: float, ended: bool = False) -> None:
    """Rest, behind a chunk of a text."""
    await pace.rest(gap_s, Waker(asyncio.get_running_loop()), lambda: ended)


async def turns(count: int = 5) -> None:
    """Let the loop do what it can."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_streams_rest_together() -> None:
    async def main() -> None:
        pace, timers = Pace(cores=2), Timers(asyncio.get_running_loop())
        with pace.stream(), pace.stream():
            both = [asyncio.create_task(rest(pace, 0.0)) for _ in range(2)]
            await turns()
            assert [seconds for seconds, _ in timers.due] == [pace.pause_s]
            assert not any(one.done() for one in both)
            timers.fire()
            await turns()
            assert all(one.done() for one in both)

    asyncio.run(main())


def test_tokens_that_come_slowly_do_not_wait() -> None:
    async def main() -> None:
        pace, timers = Pace(cores=2), Timers(asyncio.get_running_loop())
        with pace.stream():
            await rest(pace, 3 * pace.pause_s)
            assert not timers.due
        await rest(Pace(0.0), 0.0)
        assert not timers.due

    asyncio.run(main())


def test_who_leaves_while_it_rests_holds_up_nobody() -> None:
    async def main() -> None:
        pace, timers = Pace(0.02), Timers(asyncio.get_running_loop())
        leaves, stays = (asyncio.create_task(rest(pace, 0.0)) for _ in range(2))
        await turns()
        leaves.cancel()
        await turns()
        timers.fire()
        await stays
        assert leaves.cancelled()

    asyncio.run(main())


def test_a_text_that_ends_does_not_rest() -> None:
    async def main() -> None:
        pace, timers = Pace(0.02), Timers(asyncio.get_running_loop())
        await rest(pace, 0.0, ended=True)
        waker, ended = Waker(asyncio.get_running_loop()), False
        ends = asyncio.create_task(pace.rest(0.0, waker, lambda: ended))
        stays = asyncio.create_task(rest(pace, 0.0))
        await turns()
        assert not ends.done()
        ended = True
        await asyncio.to_thread(waker.notify)
        await ends
        assert not stays.done()
        timers.fire()
        await stays

    asyncio.run(main())
