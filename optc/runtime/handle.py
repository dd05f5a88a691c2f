"""`Handle`: a caller's end of one submitted request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

from optc.runtime.outputs import Completion, Delta, RequestOutput


class EngineError(RuntimeError):
    """The engine failed or was closed; its cause, if any, is the original exception."""


class Handle:
    """One request in the engine. Iterate it to stream, or wait for its `result`.

    The engine's thread calls the methods ``push``, ``finish`` and ``fail``; all others are for
    the caller, from any thread.

    Args:
        prompt_token_ids: The prompt as the model sees it.
        n: Completions that are asked for.
        cancel: Tells the engine to end the request.
    """

    def __init__(
        self, prompt_token_ids: tuple[int, ...], n: int, cancel: Callable[[Handle], None]
    ) -> None:
        self.prompt_token_ids = prompt_token_ids
        self._n = n
        self._cancel = cancel
        self._deltas: SimpleQueue[Delta | None] = SimpleQueue()
        self._completions: list[Completion] = []
        self._failure: BaseException | None = None
        self._done = threading.Event()

    @property
    def done(self) -> bool:
        """The request has ended, in whatever way."""
        return self._done.is_set()

    def cancel(self) -> None:
        """End the request soon; what it has so far is its result. No effect when it has ended."""
        self._cancel(self)

    def __iter__(self) -> Iterator[Delta]:
        """Deltas as they come, those of n completions interleaved; each is given once.

        Raises:
            EngineError: The engine failed.
        """
        while (delta := self._deltas.get()) is not None:
            yield delta
        self._deltas.put(None)  # so that a second iteration ends as well
        self._raise_failure()

    def result(self, timeout_s: float | None = None) -> RequestOutput:
        """The finished request; waits for it.

        Raises:
            TimeoutError: It has not ended after ``timeout_s``; it goes on.
            EngineError: The engine failed.
        """
        if not self._done.wait(timeout_s):
            raise TimeoutError(f"the request has not ended after {timeout_s} s")
        self._raise_failure()
        ordered = sorted(self._completions, key=lambda completion: completion.index)
        return RequestOutput(self.prompt_token_ids, tuple(ordered))

    def push(self, delta: Delta) -> None:
        """Add what a step gave."""
        self._deltas.put(delta)

    def finish(self, completion: Completion) -> None:
        """Add a finished completion; the last one ends the request."""
        self._completions.append(completion)
        if len(self._completions) == self._n:
            self._end()

    def fail(self, error: BaseException) -> None:
        """End the request with an error."""
        if not self.done:
            self._failure = error
            self._end()

    def _end(self) -> None:
        self._done.set()
        self._deltas.put(None)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise EngineError("the engine failed") from self._failure
