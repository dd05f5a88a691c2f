"""`Submitters`: threads on which coroutines hand requests in, while their loop goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from optc.runtime.handle import Handle

#: Threads that encode prompts, and that compile grammars beside: these take longer.
_ENCODING, _COMPILING = 4, 2


class Submitters:
    """Threads of an engine's own: those of the loop's executor belong to the program, and would be
    held up by requests, or hold them up. Requests that compile a grammar have theirs apart, so
    that others need not wait for them."""

    def __init__(self) -> None:
        self._pools: dict[bool, ThreadPoolExecutor] = {}

    def begin(self, submit: Callable[[], Handle], *, compiles: bool) -> Future[Handle]:
        """Call ``submit`` on a thread.

        Args:
            submit: Encodes the prompt, compiles the grammar and hands the request in.
            compiles: There is a grammar.
        """
        return self._pool(compiles).submit(submit)

    def _pool(self, compiles: bool) -> ThreadPoolExecutor:
        if compiles not in self._pools:
            from concurrent.futures import ThreadPoolExecutor

            count = _COMPILING if compiles else _ENCODING
            self._pools[compiles] = ThreadPoolExecutor(count, "optc-submit")
        return self._pools[compiles]


async def submitted(future: Future[Handle]) -> Handle:
    """The result of a thread of `Submitters`. Where the task that waits is cancelled meanwhile, so
    is the request.

    Raises:
        OptcError: What the thread raised.
    """
    from asyncio import wrap_future  # a program with coroutines has it already

    try:
        return await wrap_future(future)
    except BaseException:
        cancel_submitted(future)
        raise


def cancel_submitted(future: Future[Handle]) -> None:
    """Cancel the request that nobody waits for any more, if it is handed in and has not ended."""
    future.add_done_callback(_cancel)  # by the thread: the loop may be closed by then


def _cancel(future: Future[Handle]) -> None:
    if not future.cancelled() and future.exception() is None and not future.result().done:
        future.result().cancel()
