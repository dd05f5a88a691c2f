"""Load on a server: requests that do not wait for it (open loop), or clients that do (closed)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

from optc.proof.bench.online.ask import Answer, ask
from optc.proof.bench.online.prompts import Asking
from optc.proof.bench.online.server import ServerUnderLoad
from optc.runtime.metrics.quantiles import Quantiles
from optc.system.progress import Progress, no_progress


@dataclass
class Load:
    """The results of a load, its warm-up left out.

    Attributes:
        answers: In the order of the requests.
        began_s: The first counted request was due.
        offered_per_s: Rate of the counted arrivals; None for a closed loop, or one arrival.
        lateness: How much later than planned requests were sent.
    """

    answers: list[Answer]
    began_s: float
    offered_per_s: float | None = None
    lateness: Quantiles = field(default_factory=Quantiles)

    @property
    def seconds(self) -> float:
        """From the first counted request to the last end."""
        ends = [one.times.finished_s for one in self.answers]
        return max(end for end in ends if end is not None) - self.began_s


async def open_loop(
    server: ServerUnderLoad,
    askings: Sequence[Asking],
    *,
    warmup: int,
    progress: Progress = no_progress,
) -> Load:
    """Send each request when it is due, and wait for all answers. Times count from when a request
    was due, so that a sender that falls behind does not hide the wait.

    Args:
        server: What is asked.
        askings: In order of time.
        warmup: So many of the first ones are not counted; fewer than there are.
        progress: Told how many have ended.
    """
    start_s, lateness = time.perf_counter(), Quantiles()
    ended = _Ended(len(askings), progress)

    async def send(session: aiohttp.ClientSession, asking: Asking) -> Answer:
        due_s = start_s + asking.arrival_s
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        lateness.add(max(0.0, time.perf_counter() - due_s))
        return ended.note(await ask(session, server, asking, due_s))

    async with server.session() as session:
        answers = await asyncio.gather(*(send(session, one) for one in askings))
    counted = askings[warmup:]
    span = counted[-1].arrival_s - counted[0].arrival_s
    rate = (len(counted) - 1) / span if span > 0 else None
    return Load(answers[warmup:], start_s + counted[0].arrival_s, rate, lateness)


async def closed_loop(
    server: ServerUnderLoad,
    askings: Sequence[Asking],
    clients: int,
    *,
    warmup: int = 0,
    progress: Progress = no_progress,
) -> Load:
    """Let clients ask one request after the other, each as soon as its last one has ended; the
    times of arrival mean nothing.

    Args:
        server, askings, warmup, progress: As of `open_loop`.
        clients: How many there are.
    """
    left = iter(enumerate(askings))
    found: dict[int, Answer] = {}
    ended = _Ended(len(askings), progress)

    async def client(session: aiohttp.ClientSession) -> None:
        for index, asking in left:
            answer = await ask(session, server, asking, time.perf_counter())
            found[index] = ended.note(answer)

    async with server.session() as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))
    answers = [found[index] for index in range(warmup, len(askings))]
    return Load(answers, min(one.times.arrived_s for one in answers))


class _Ended:
    """Counts ends for who watches."""

    def __init__(self, all_: int, progress: Progress) -> None:
        self._count, self._all, self._progress = 0, all_, progress

    def note(self, answer: Answer) -> Answer:
        self._count += 1
        self._progress("load", self._count, self._all)
        return answer
