"""`Stream`: the deltas of a request that a coroutine reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING

from optc.runtime.threads.awaiting import cancel_submitted, submitted

if TYPE_CHECKING:
    from concurrent.futures import Future

    from optc.runtime.handle import Handle
    from optc.runtime.outputs import Delta


class Stream(AsyncIterator["Delta"]):
    """Deltas of one request, for ``async for`` in any event loop; each is given once.

    Awaiting it first gives the same stream once the request is known to be valid. Leaving the
    iteration, by an error or because its task is cancelled too, cancels the request, as does
    dropping the stream.

    Args:
        future: Its handle, or what is wrong with it.
    """

    def __init__(self, future: Future[Handle]) -> None:
        self._future = future
        self._deltas: AsyncIterator[Delta] | None = None

    def __await__(self) -> Generator[None, None, Stream]:
        """The stream itself, when the request has been handed in.

        Raises:
            RequestError, EngineError, UnavailableError: As of `Engine.submit`.
        """
        return self._ready().__await__()

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Delta:
        """The next delta.

        Raises:
            RequestError, UnavailableError: As of `Engine.submit`, at the first one.
            EngineError: The engine failed.
        """
        try:
            if self._deltas is None:
                self._deltas = aiter(await submitted(self._future))
            return await anext(self._deltas)
        except BaseException:  # its end, too
            self.cancel()
            raise

    async def aclose(self) -> None:
        """`cancel`, for ``contextlib.aclosing``."""
        self.cancel()

    def cancel(self) -> None:
        """End the request soon. No effect when it has ended."""
        cancel_submitted(self._future)

    def __del__(self) -> None:
        self.cancel()

    async def _ready(self) -> Stream:
        await submitted(self._future)
        return self
