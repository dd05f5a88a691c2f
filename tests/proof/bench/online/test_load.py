"""Open and closed loops on a server that says what it is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the extra 'serve' is not installed")

from optc.proof.bench.online.load import Load, closed_loop, open_loop
from optc.proof.bench.online.prompts import Asking
from optc.proof.bench.online.server import ServerUnderLoad
from tests.proof.bench.online.scripted import DONE, event, streaming, text

PARTS = [text("a"), text("b"), event(choices=[], usage={"completion_tokens": 2}), DONE]


class Watched:
    """Answers, and counts how many it answers at once."""

    def __init__(self) -> None:
        self.now = self.most = self.all = 0
        self._answer = streaming(PARTS)

    async def __call__(self, request: Any) -> Any:
        self.now += 1
        self.all += 1
        self.most = max(self.most, self.now)
        try:
            return await self._answer(request)
        finally:
            self.now -= 1


def loaded(handler: Any, run: Any) -> Load:
    from tests.proof.bench.online.scripted import scripted

    async def start() -> Load:
        async with scripted(completions=handler) as url:
            return await run(ServerUnderLoad(url, "m"))

    return asyncio.run(start())


def askings(count: int, every_s: float) -> list[Asking]:
    return [Asking(index * every_s, f"the {index}", 2) for index in range(count)]


def test_a_closed_loop_has_no_more_requests_than_clients() -> None:
    watched, seen = Watched(), []
    load = loaded(
        watched,
        lambda server: closed_loop(
            server,
            askings(9, 100.0),
            3,
            warmup=2,
            progress=lambda stage, done, of: seen.append((done, of)),
        ),
    )
    assert (watched.most, watched.all, len(load.answers)) == (3, 9, 7)
    assert load.offered_per_s is None
    assert load.began_s == min(one.times.arrived_s for one in load.answers)
    assert seen == [(n, 9) for n in range(1, 10)]


def test_an_open_loop_does_not_wait_for_answers() -> None:
    watched = Watched()
    load = loaded(watched, lambda server: open_loop(server, askings(8, 1e-6), warmup=3))
    assert watched.most > 3
    assert len(load.answers) == 5
    assert load.offered_per_s == pytest.approx(1e6)
    assert load.lateness.count == 8
    # Times count from when a request was due, whenever it was sent.
    due = [one.times.arrived_s - load.began_s for one in load.answers]
    assert due == pytest.approx([0, 1e-6, 2e-6, 3e-6, 4e-6], abs=1e-9)
    assert load.seconds > 0
