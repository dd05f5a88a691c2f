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

    async def submitted(self, submit: Callable[[], Handle], *, compiles: bool) -> Handle:
        """Call ``submit`` on a thread. Where its task is cancelled meanwhile, so is the request.

        Args:
            submit: Encodes the prompt, compiles the grammar and hands the request in.
            compiles: There is a grammar.

        Raises:
            OptcError: What ``submit`` raises.
        """
        from asyncio import wrap_future  # a program with coroutines has it already

        future = self._pool(compiles).submit(submit)
        try:
            return await wrap_future(future)
        except BaseException:
            future.add_done_callback(_cancel)  # by the thread: the loop may be closed by then
            raise

    def _pool(self, compiles: bool) -> ThreadPoolExecutor:
        if compiles not in self._pools:
            from concurrent.futures import ThreadPoolExecutor

            count = _COMPILING if compiles else _ENCODING
            self._pools[compiles] = ThreadPoolExecutor(count, "optc-submit")
        return self._pools[compiles]


def _cancel(future: Future[Handle]) -> None:
    """Cancel the request that nobody waits for, if there is one."""
    if not future.cancelled() and future.exception() is None:
        future.result().cancel()
