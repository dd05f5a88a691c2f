"""`Waker`: a thread wakes a coroutine once, however often it calls."""

from __future__ import annotations

import asyncio

from optc.runtime.threads.waking import Waker


def test_a_coroutine_is_woken_and_waits_again() -> None:
    async def main() -> list[str]:
        seen, waker = [], Waker(asyncio.get_running_loop())

        async def look() -> None:
            for number in ("one", "two"):
                await waker.wait()
                seen.append(number)

        task = asyncio.create_task(look())
        assert waker.notify()
        await asyncio.sleep(0.01)
        assert seen == ["one"]
        assert waker.notify()
        await task
        return seen

    assert asyncio.run(main()) == ["one", "two"]


def test_many_calls_are_one_callback() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        waker, callbacks = Waker(loop), 0
        plain = loop.call_soon_threadsafe

        def count(*arguments: object) -> asyncio.Handle:
            nonlocal callbacks
            callbacks += 1
            return plain(*arguments)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = count  # type: ignore[method-assign, assignment]
        assert all(waker.notify() for _ in range(5))
        await waker.wait()
        return callbacks

    assert asyncio.run(main()) == 1


def test_nobody_waits_in_a_closed_loop() -> None:
    loop = asyncio.new_event_loop()
    waker = Waker(loop)
    loop.close()
    assert not waker.notify()
