"""Calls wait for their turn, are turned away where too many do, and leave no trace."""

from __future__ import annotations

import asyncio
import threading

import pytest

from optc.serve.api_errors import APIError
from optc.serve.tensors.work_queue import WorkQueue


def test_calls_run_in_their_order_one_at_a_time() -> None:
    async def main() -> None:
        queue, order, inside = WorkQueue(), list[int](), list[int]()

        def work(number: int) -> int:
            inside.append(number)
            assert len(inside) == 1
            order.append(number)
            inside.clear()
            return number

        tasks = [queue.run(lambda n=number: work(n)) for number in range(20)]  # type: ignore[misc]
        assert await asyncio.gather(*tasks) == order == list(range(20))
        assert (queue.running, queue.waiting, queue.times.count) == (0, 0, 20)

    asyncio.run(main())


def test_too_many_are_turned_away_and_who_leaves_takes_no_turn() -> None:
    async def main() -> None:
        queue, go, ran = WorkQueue(2), threading.Event(), list[str]()
        first = asyncio.create_task(queue.run(go.wait))
        while not queue.running:
            await asyncio.sleep(0)
        second = asyncio.create_task(queue.run(lambda: ran.append("second")))
        third = asyncio.create_task(queue.run(lambda: ran.append("third")))
        await asyncio.sleep(0)
        assert (queue.running, queue.waiting, queue.has_room) == (1, 2, False)
        with pytest.raises(APIError, match="ask again later"):
            await queue.run(lambda: None)
        second.cancel()
        await asyncio.wait([second])
        assert queue.has_room
        go.set()
        await third
        assert await first is True
        assert ran == ["third"]

    asyncio.run(main())


def test_who_leaves_while_it_runs_blocks_nobody_and_a_failure_frees_the_turn() -> None:
    async def main() -> None:
        queue, go = WorkQueue(), threading.Event()
        first = asyncio.create_task(queue.run(go.wait))
        while not queue.running:
            await asyncio.sleep(0)
        second = asyncio.create_task(queue.run(lambda: 1 // 0))
        first.cancel()
        await asyncio.wait([first])
        assert queue.running == 1  # its thread cannot be stopped
        go.set()
        with pytest.raises(ZeroDivisionError):
            await second
        queue.closed = True
        with pytest.raises(APIError, match="shutting down"):
            await queue.run(lambda: None)
        assert (queue.running, queue.waiting) == (0, 0)

    asyncio.run(main())
