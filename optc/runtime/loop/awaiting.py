"""`submitted`: a request handed in by a coroutine, whose loop goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import Future

    from optc.runtime.handle import Handle


async def submitted(submit: Callable[[], Handle]) -> Handle:
    """Call ``submit`` on a thread of the loop's executor: to encode a long prompt or to compile a
    grammar takes a while. Where its task is cancelled meanwhile, so is the request."""
    from asyncio import get_running_loop, shield  # a program with coroutines has it already

    future = get_running_loop().run_in_executor(None, submit)
    try:
        return await shield(future)
    except BaseException:
        future.add_done_callback(_cancel)
        raise


def _cancel(future: Future[Handle]) -> None:
    """Cancel the request that nobody waits for, if there is one."""
    if not future.cancelled() and future.exception() is None:
        future.result().cancel()
