"""`Waker`: a thread wakes a coroutine once, however often it calls."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from optc.runtime.threads.waking import Waker


def nothing() -> bool:
    return False


def test_a_coroutine_is_woken_and_waits_again() -> None:
    async def main() -> list[str]:
        seen, waker = [], Waker(asyncio.get_running_loop())

        async def look() -> None:
            for number in ("one", "two"):
                await waker.wait(nothing)
                seen.append(number)

        task = asyncio.create_task(look())
        await asyncio.sleep(0.01)
        assert waker.notify()
        await asyncio.sleep(0.01)
        assert seen == ["one"]
        assert waker.notify()
        await task
        return seen

    assert asyncio.run(main()) == ["one", "two"]


def test_news_that_have_come_are_not_waited_for() -> None:
    async def main() -> None:
        waker, news = Waker(asyncio.get_running_loop()), []
        news.append(1)  # nobody listens yet
        assert waker.notify()
        await waker.wait(lambda: bool(news))

        def come_meanwhile() -> bool:
            assert waker.notify()  # another thread, between the look and the wait
            return False

        await waker.wait(come_meanwhile)

    asyncio.run(main())


@pytest.mark.parametrize("waits", [True, False])
def test_many_calls_are_one_callback_and_none_if_nobody_waits(waits: bool) -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        waker, callbacks = Waker(loop), 0
        plain = loop.call_soon_threadsafe

        def count(*arguments: object) -> asyncio.Handle:
            nonlocal callbacks
            callbacks += 1
            return plain(*arguments)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = count  # type: ignore[method-assign, assignment]
        task = asyncio.create_task(waker.wait(nothing)) if waits else None
        await asyncio.sleep(0)
        assert all(waker.notify() for _ in range(5))
        if task is not None:
            await task
        return callbacks

    assert asyncio.run(main()) == waits


def test_all_that_a_step_wakes_are_one_callback() -> None:
    async def main() -> tuple[int, list[int]]:
        loop = asyncio.get_running_loop()
        wakers, woken, callbacks = [Waker(loop) for _ in range(5)], [], 0
        plain = loop.call_soon_threadsafe

        def count(*arguments: object) -> asyncio.Handle:
            nonlocal callbacks
            callbacks += 1
            return plain(*arguments)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = count  # type: ignore[method-assign, assignment]

        async def wait(place: int) -> None:
            await wakers[place].wait(nothing)
            woken.append(place)

        tasks = [asyncio.create_task(wait(place)) for place in range(5)]
        await asyncio.sleep(0)
        assert all(waker.notify() for waker in wakers)  # before the loop gets to any of it
        await asyncio.gather(*tasks)
        return callbacks, woken

    callbacks, woken = asyncio.run(main())
    assert woken == list(range(5))
    assert callbacks == 1


def closed() -> tuple[asyncio.AbstractEventLoop, Waker]:
    """A loop that was closed while a coroutine waited, and its waker."""
    loop = asyncio.new_event_loop()
    waker = Waker(loop)
    waiting = waker.wait(nothing)
    waiting.send(None)  # it waits
    loop.close()
    return loop, waker


def test_nobody_waits_in_a_closed_loop() -> None:
    assert not closed()[1].notify()


def test_a_loop_that_is_gone_is_not_kept() -> None:
    loop, waker = closed()
    gone = weakref.ref(loop)
    assert not waker.notify()
    del loop, waker
    gc.collect()
    assert gone() is None
